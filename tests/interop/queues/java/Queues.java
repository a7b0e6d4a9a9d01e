import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.queue.DistributedDelayQueue;
import org.apache.curator.framework.recipes.queue.DistributedIdQueue;
import org.apache.curator.framework.recipes.queue.DistributedPriorityQueue;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.MultiItem;
import org.apache.curator.framework.recipes.queue.QueueBase;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;

/**
 * {@code queue HANDLE CLIENT KIND PATH [consume=true] [fail=TIMES] [held=true] [lock=PATH] [threads=N] [background=false]}, then
 * {@code put HANDLE HEX [id, priority or due ms]}, {@code put-multi HANDLE HEX,... [priority or due ms]}, {@code flush}, {@code remove HANDLE ID}, {@code step}, {@code release}; and {@code simple HANDLE CLIENT PATH} with {@code offer HANDLE HEX},
 * {@code poll HANDLE}, {@code peek}, {@code take}.
 */
final class Queues {
    private Queues() {}

    /** Bytes as they are. */
    static final class Raw implements QueueSerializer<byte[]> {
        @Override
        public byte[] serialize(byte[] item) {
            return item;
        }

        @Override
        public byte[] deserialize(byte[] bytes) {
            return bytes;
        }
    }

    /** A queue, and what it works with. */
    record Running(QueueBase<byte[]> queue, Consumer consumer, ExecutorService pool) implements AutoCloseable {
        void put(byte[] item, String how) throws Exception {
            if (queue instanceof DistributedQueue<byte[]> plain) {
                plain.put(item);
            } else if (queue instanceof DistributedIdQueue<byte[]> named) {
                named.put(item, how);
            } else if (queue instanceof DistributedPriorityQueue<byte[]> urgent) {
                urgent.put(item, Integer.parseInt(how));
            } else {
                ((DistributedDelayQueue<byte[]>) queue).put(item, Long.parseLong(how));
            }
        }

        void putMulti(MultiItem<byte[]> items, String how) throws Exception {
            if (queue instanceof DistributedQueue<byte[]> plain) {
                plain.putMulti(items);
            } else if (queue instanceof DistributedPriorityQueue<byte[]> urgent) {
                urgent.putMulti(items, Integer.parseInt(how));
            } else {
                ((DistributedDelayQueue<byte[]>) queue).putMulti(items, Long.parseLong(how));
            }
        }

        @Override
        public void close() throws IOException {
            queue.close();
            if (pool != null) {
                pool.shutdownNow();
            }
        }
    }

    static void teach(Peer peer) {
        peer.act("queue", arguments -> peer.remember(arguments.get(0), started(peer, arguments)));
        peer.act("put", arguments -> running(peer, arguments).put(Peer.bytes(arguments.get(1)), last(arguments)));
        peer.act("put-multi", arguments -> running(peer, arguments).putMulti(multi(arguments.get(1)), last(arguments)));
        peer.verb("flush", arguments -> List.of(running(peer, arguments).queue().flushPuts(30, TimeUnit.SECONDS)));
        peer.verb("remove", arguments -> {
            DistributedIdQueue<byte[]> queue = (DistributedIdQueue<byte[]>) running(peer, arguments).queue();
            return List.of(queue.remove(arguments.get(1)));
        });
        peer.act("release", arguments -> running(peer, arguments).consumer().release());
        peer.act("step", arguments -> running(peer, arguments).consumer().step());
        teachSimple(peer);
    }

    private static void teachSimple(Peer peer) {
        peer.act("simple", arguments -> {
            CuratorFramework client = peer.find(arguments.get(1), CuratorFramework.class);
            peer.remember(arguments.get(0), new SimpleDistributedQueue(client, arguments.get(2)));
        });
        peer.verb("offer", arguments -> List.of(simple(peer, arguments).offer(Peer.bytes(arguments.get(1)))));
        peer.verb("peek", arguments -> maybe(simple(peer, arguments).peek()));
        peer.verb("take", arguments -> maybe(simple(peer, arguments).take()));
        peer.verb("poll", arguments -> maybe(simple(peer, arguments).poll()));
    }

    private static SimpleDistributedQueue simple(Peer peer, List<String> arguments) {
        return peer.find(arguments.get(0), SimpleDistributedQueue.class);
    }

    private static Running running(Peer peer, List<String> arguments) {
        return peer.find(arguments.get(0), Running.class);
    }

    private static Running started(Peer peer, List<String> arguments) throws Exception {
        Consumer consumer = Consumer.of(peer, arguments);
        int threads = Peer.number(arguments, "threads", 1);
        ExecutorService pool = threads > 1 ? Executors.newFixedThreadPool(threads) : null;
        CuratorFramework client = peer.find(arguments.get(1), CuratorFramework.class);
        QueueBase<byte[]> queue = built(client, consumer, arguments.get(2), arguments.get(3), arguments, pool);
        queue.start();
        return new Running(queue, consumer, pool);
    }

    static QueueBase<byte[]> built(
            CuratorFramework client,
            QueueConsumer<byte[]> consumer,
            String kind,
            String path,
            List<String> options,
            ExecutorService pool) {
        QueueBuilder<byte[]> builder = QueueBuilder.builder(client, consumer, new Raw(), path);
        String lock = Peer.option(options, "lock", "");
        if (!lock.isEmpty()) {
            builder.lockPath(lock);
        }
        if (pool != null) {
            builder.executor(pool);
        }
        builder.putInBackground(Boolean.parseBoolean(Peer.option(options, "background", "true")));
        return switch (kind) {
            case "plain" -> builder.buildQueue();
            case "id" -> builder.buildIdQueue();
            case "priority" -> builder.buildPriorityQueue(0);
            case "delay" -> builder.buildDelayQueue();
            default -> throw new IllegalArgumentException("no kind is called " + kind);
        };
    }

    private static List<?> maybe(byte[] item) {
        return item == null ? List.of() : List.of(Peer.hex(item));
    }

    private static String last(List<String> arguments) {
        return arguments.size() > 2 ? arguments.get(2) : "";
    }

    /** Items in hexadecimal, parted by commas; {@code -} for none at all. */
    private static MultiItem<byte[]> multi(String items) {
        List<byte[]> all = new ArrayList<>();
        if (!items.equals("-")) {
            Arrays.stream(items.split(",", -1)).map(Peer::bytes).forEach(all::add);
        }
        Iterator<byte[]> rest = all.iterator();
        return () -> rest.hasNext() ? rest.next() : null;
    }
}
