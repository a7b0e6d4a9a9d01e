#!/bin/bash
# A class of Kafka, with the JVM options of the environment.
exec java ${KAFKA_HEAP_OPTS:--Xmx256M} ${KAFKA_JVM_PERFORMANCE_OPTS:--XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto} \
    -Dorg.slf4j.simpleLogger.defaultLogLevel="${LOG_LEVEL:-info}" -Dorg.slf4j.simpleLogger.showDateTime=true \
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss,SSS" $KAFKA_OPTS -cp "/opt/kafka/libs/*" "$@"
