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
import org.apache.curator.framework.recipes.queue.ErrorMode;
import org.apache.curator.framework.recipes.queue.MultiItem;
import org.apache.curator.framework.recipes.queue.QueueBase;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;

/**
 * {@code queue HANDLE CLIENT KIND PATH [consume=true] [fail=TIMES] [held=true] [lock=PATH] [threads=N] [min=N] [max=N] [mode=DELETE] [background=false]}, then
 * {@code put HANDLE HEX [id, priority or due ms]}, {@code put-multi HANDLE ID,... [...]}, {@code put-numbers HANDLE FIRST COUNT},
 * {@code flush}, {@code remove}, {@code fail}, {@code hold}, {@code step}, {@code release}, {@code close}; and
 * {@code simple HANDLE CLIENT PATH} with {@code offer}, {@code poll HANDLE [MS]}, {@code peek}, {@code element}, {@code remove-first}, {@code take}.
 */
final class Queues {
    private Queues() {}

    /** A queue, and what it works with. */
    record Running(QueueBase<byte[]> queue, Consumer consumer, ExecutorService pool) {
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

        void close() throws Exception {
            queue.close();
            if (pool != null) {
                pool.shutdownNow();
            }
        }
    }

    static void teach(Peer peer) {
        peer.verb("queue", arguments -> {
            peer.remember(arguments.get(0), running(peer, arguments));
            return List.of();
        });
        peer.verb("put", arguments -> {
            running(peer, arguments.get(0)).put(Peer.bytes(arguments.get(1)), last(arguments, 2));
            return List.of();
        });
        peer.verb("put-multi", arguments -> {
            running(peer, arguments.get(0)).putMulti(multi(arguments.get(1)), last(arguments, 2));
            return List.of();
        });
        peer.verb("put-numbers", arguments -> {
            int first = Integer.parseInt(arguments.get(1));
            for (int number = first; number < first + Integer.parseInt(arguments.get(2)); number++) {
                running(peer, arguments.get(0)).put(Integer.toString(number).getBytes(), "");
            }
            return List.of();
        });
        peer.verb("flush", arguments -> List.of(running(peer, arguments.get(0)).queue().flushPuts(30, TimeUnit.SECONDS)));
        peer.verb("remove", arguments -> {
            DistributedIdQueue<byte[]> queue = (DistributedIdQueue<byte[]>) running(peer, arguments.get(0)).queue();
            return List.of(queue.remove(arguments.get(1)));
        });
        peer.verb("close", arguments -> {
            peer.forget(arguments.get(0), Running.class).close();
            return List.of();
        });
        teachTheConsumer(peer);
        teachSimple(peer);
    }

    private static void teachTheConsumer(Peer peer) {
        peer.verb("fail", arguments -> {
            running(peer, arguments.get(0)).consumer().failNext(Integer.parseInt(arguments.get(1)));
            return List.of();
        });
        peer.verb("hold", arguments -> {
            running(peer, arguments.get(0)).consumer().hold();
            return List.of();
        });
        peer.verb("release", arguments -> {
            running(peer, arguments.get(0)).consumer().release();
            return List.of();
        });
        peer.verb("step", arguments -> {
            running(peer, arguments.get(0)).consumer().step();
            return List.of();
        });
    }

    private static void teachSimple(Peer peer) {
        peer.verb("simple", arguments -> {
            CuratorFramework client = peer.find(arguments.get(1), CuratorFramework.class);
            peer.remember(arguments.get(0), new SimpleDistributedQueue(client, arguments.get(2)));
            return List.of();
        });
        peer.verb("offer", arguments -> List.of(simple(peer, arguments).offer(Peer.bytes(arguments.get(1)))));
        peer.verb("peek", arguments -> maybe(simple(peer, arguments).peek()));
        peer.verb("element", arguments -> maybe(simple(peer, arguments).element()));
        peer.verb("remove-first", arguments -> maybe(simple(peer, arguments).remove()));
        peer.verb("take", arguments -> maybe(simple(peer, arguments).take()));
        peer.verb("poll", arguments -> maybe(
                arguments.size() > 1
                        ? simple(peer, arguments).poll(Long.parseLong(arguments.get(1)), TimeUnit.MILLISECONDS)
                        : simple(peer, arguments).poll()));
    }

    private static SimpleDistributedQueue simple(Peer peer, List<String> arguments) {
        return peer.find(arguments.get(0), SimpleDistributedQueue.class);
    }

    private static Running running(Peer peer, String handle) {
        return peer.find(handle, Running.class);
    }

    private static Running running(Peer peer, List<String> arguments) throws Exception {
        boolean consumes = Boolean.parseBoolean(Peer.option(arguments, "consume", "false"));
        Consumer consumer = consumes ? new Consumer(peer, arguments.get(0)) : null;
        if (consumes) {
            consumer.failNext(Integer.parseInt(Peer.option(arguments, "fail", "0")));
            if (Boolean.parseBoolean(Peer.option(arguments, "held", "false"))) {
                consumer.hold();
            }
        }
        int threads = Integer.parseInt(Peer.option(arguments, "threads", "1"));
        ExecutorService pool = threads > 1 ? Executors.newFixedThreadPool(threads) : null;
        CuratorFramework client = peer.find(arguments.get(1), CuratorFramework.class);
        QueueBase<byte[]> queue = built(client, consumer, arguments.get(2), arguments.get(3), arguments, pool);
        String mode = Peer.option(arguments, "mode", "");
        if (!mode.isEmpty()) {
            queue.setErrorMode(ErrorMode.valueOf(mode));
        }
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
        int most = Integer.parseInt(Peer.option(options, "max", "0"));
        if (most > 0) {
            builder.maxItems(most);
        }
        builder.putInBackground(Boolean.parseBoolean(Peer.option(options, "background", "true")) && most == 0);
        return switch (kind) {
            case "plain" -> builder.buildQueue();
            case "id" -> builder.buildIdQueue();
            case "priority" -> builder.buildPriorityQueue(Integer.parseInt(Peer.option(options, "min", "0")));
            case "delay" -> builder.buildDelayQueue();
            default -> throw new IllegalArgumentException("no kind is called " + kind);
        };
    }

    private static List<?> maybe(byte[] item) {
        return item == null ? List.of() : List.of(Peer.hex(item));
    }

    private static String last(List<String> arguments, int position) {
        return arguments.size() > position ? arguments.get(position) : "";
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
