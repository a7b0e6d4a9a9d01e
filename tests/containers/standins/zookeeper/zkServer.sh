#!/bin/bash
# start-foreground: the server, in place of this shell. status: "Mode: ..." from the server itself, exit code 1 if it does not answer.
configuration="${ZOOCFGDIR:-/conf}/zoo.cfg"

case "$1" in
start-foreground)
    exec java "-Xmx${ZK_SERVER_HEAP:-1000}m" $JVMFLAGS $SERVER_JVMFLAGS -Dzookeeper.jmx.log4j.disable=true \
        -Dorg.slf4j.simpleLogger.showDateTime=true "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss,SSS" \
        -cp "/apache-zookeeper/lib/*" org.apache.zookeeper.server.quorum.QuorumPeerMain "$configuration"
    ;;
status)
    port=$(sed -n 's/^clientPort=//p' "$configuration")
    mode=$(echo srvr | nc -w 5 localhost "${port:-2181}" | grep '^Mode:') || {
        echo "Error contacting service. It is probably not running." >&2
        exit 1
    }
    echo "$mode"
    ;;
*)
    echo "this stand-in's zkServer.sh knows start-foreground and status" >&2
    exit 2
    ;;
esac
