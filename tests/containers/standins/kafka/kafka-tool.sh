#!/bin/bash
# The tool whose name this was called by.
case "$(basename "$0" .sh)" in
kafka-topics) class=org.apache.kafka.tools.TopicCommand ;;
kafka-configs) class=kafka.admin.ConfigCommand ;;
kafka-storage) class=kafka.tools.StorageTool ;;
kafka-consumer-groups) class=org.apache.kafka.tools.consumer.group.ConsumerGroupCommand ;;
kafka-get-offsets) class=org.apache.kafka.tools.GetOffsetShell ;;
kafka-metadata-quorum) class=org.apache.kafka.tools.MetadataQuorumCommand ;;
kafka-broker-api-versions) class=org.apache.kafka.tools.BrokerApiVersionsCommand ;;
kafka-console-consumer) class=org.apache.kafka.tools.consumer.ConsoleConsumer ;;
kafka-console-producer) class=org.apache.kafka.tools.ConsoleProducer ;;
*) echo "this stand-in has no $0" >&2 && exit 2 ;;
esac
# A tool is not the broker: the broker's heap and options are not for it, and its log would drown what it prints.
unset KAFKA_HEAP_OPTS KAFKA_JVM_PERFORMANCE_OPTS
LOG_LEVEL=warn exec /opt/kafka/bin/kafka-run-class.sh "$class" "$@"
