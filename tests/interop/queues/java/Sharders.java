import java.util.List;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueSharder;
import org.apache.curator.framework.recipes.queue.QueueSharderPolicies;

/**
 * {@code sharder HANDLE CLIENT PATH LEADER_PATH [threshold=N] [max=N] [check=MS] [consume=true] [lock=PATH]}, then {@code shard-put HANDLE HEX},
 * {@code shards HANDLE}. Shards are plain queues; each has its locks below the lock path, in a folder of its name.
 */
final class Sharders {
    private Sharders() {}

    static void teach(Peer peer) {
        peer.act("sharder", arguments -> {
            QueueSharder<byte[], DistributedQueue<byte[]>> sharder = made(peer, arguments);
            peer.remember(arguments.get(0), sharder);
            sharder.start();
        });
        peer.act("shard-put", arguments -> sharder(peer, arguments).getQueue().put(Peer.bytes(arguments.get(1))));
        peer.verb("shards", arguments -> List.copyOf(sharder(peer, arguments).getQueuePaths()));
    }

    private static QueueSharder<byte[], DistributedQueue<byte[]>> made(Peer peer, List<String> arguments) {
        Consumer consumer = Consumer.of(peer, arguments);
        String lock = Peer.option(arguments, "lock", "");
        QueueSharderPolicies policies = QueueSharderPolicies.builder()
                .newQueueThreshold(Peer.number(arguments, "threshold", 10_000))
                .maxQueues(Peer.number(arguments, "max", 10))
                .thresholdCheckMs(Peer.number(arguments, "check", 30_000))
                .build();
        return new QueueSharder<>(
                peer.find(arguments.get(1), CuratorFramework.class),
                (client, path) -> {
                    QueueBuilder<byte[]> builder = QueueBuilder.builder(client, consumer, new Queues.Raw(), path).putInBackground(false);
                    return (lock.isEmpty() ? builder : builder.lockPath(lock + path.substring(path.lastIndexOf('/')))).buildQueue();
                },
                arguments.get(2),
                arguments.get(3),
                policies);
    }

    @SuppressWarnings("unchecked") // made above, and nowhere else
    private static QueueSharder<byte[], DistributedQueue<byte[]>> sharder(Peer peer, List<String> arguments) {
        return peer.find(arguments.get(0), QueueSharder.class);
    }
}
