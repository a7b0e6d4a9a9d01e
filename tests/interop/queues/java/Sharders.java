import java.util.List;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueSharder;
import org.apache.curator.framework.recipes.queue.QueueSharderPolicies;

/**
 * {@code sharder HANDLE CLIENT PATH LEADER_PATH [threshold=N] [max=N] [check=MS] [consume=true] [lock=PATH]}, then {@code shard-put HANDLE HEX},
 * {@code shards HANDLE}, {@code close-sharder HANDLE}. Shards are plain queues; each has its locks below the
 * lock path, in a folder of its name.
 */
final class Sharders {
    private Sharders() {}

    static void teach(Peer peer) {
        peer.verb("sharder", arguments -> {
            QueueSharder<byte[], DistributedQueue<byte[]>> sharder = made(peer, arguments);
            peer.remember(arguments.get(0), sharder);
            sharder.start();
            return List.of();
        });
        peer.verb("shard-put", arguments -> {
            sharder(peer, arguments.get(0)).getQueue().put(Peer.bytes(arguments.get(1)));
            return List.of();
        });
        peer.verb("shards", arguments -> List.copyOf(sharder(peer, arguments.get(0)).getQueuePaths()));
        peer.verb("close-sharder", arguments -> {
            peer.forget(arguments.get(0), QueueSharder.class).close();
            return List.of();
        });
    }

    private static QueueSharder<byte[], DistributedQueue<byte[]>> made(Peer peer, List<String> arguments) {
        boolean consumes = Boolean.parseBoolean(Peer.option(arguments, "consume", "false"));
        Consumer consumer = consumes ? new Consumer(peer, arguments.get(0)) : null;
        String lock = Peer.option(arguments, "lock", "");
        QueueSharderPolicies policies = QueueSharderPolicies.builder()
                .newQueueThreshold(Integer.parseInt(Peer.option(arguments, "threshold", "10000")))
                .maxQueues(Integer.parseInt(Peer.option(arguments, "max", "10")))
                .thresholdCheckMs(Integer.parseInt(Peer.option(arguments, "check", "30000")))
                .build();
        return new QueueSharder<>(
                peer.find(arguments.get(1), CuratorFramework.class),
                (client, path) -> {
                    QueueBuilder<byte[]> builder = QueueBuilder.builder(client, consumer, new Raw(), path).putInBackground(false);
                    return (lock.isEmpty() ? builder : builder.lockPath(lock + path.substring(path.lastIndexOf('/')))).buildQueue();
                },
                arguments.get(2),
                arguments.get(3),
                policies);
    }

    @SuppressWarnings("unchecked") // made above, and nowhere else
    private static QueueSharder<byte[], DistributedQueue<byte[]>> sharder(Peer peer, String handle) {
        return peer.find(handle, QueueSharder.class);
    }
}
