import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.queue.MultiItem;
import org.apache.curator.framework.recipes.queue.QueueBase;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueuePutListener;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.state.ConnectionState;

/**
 * Curator at its best, for {@code benchmarks/queues.py}; each answers with nanoseconds.
 *
 * {@code bench-put CLIENT KIND PATH ZNODES ITEMS BYTES [listener=true] [background=false]}: until all are stored.
 * {@code bench-consume CLIENT,... KIND PATH LOCK_PATH THREADS COUNT}: from start to the last value, by as many consumers as clients; no lock
 * path: "".
 * {@code bench-flow PRODUCER CLIENT,... PATH LOCK_PATH RATE COUNT SLOW_MS}: from each put to its begin; the first of several consumers takes
 * SLOW_MS an item.
 * {@code bench-offer CLIENT PATH COUNT BYTES}, {@code bench-poll CLIENT PATH COUNT}: SimpleDistributedQueue, one after the other.
 */
final class Bench {
    private static final long LIMIT_S = 600;

    private Bench() {}

    public static void main(String[] arguments) throws IOException {
        Peer peer = Peer.withAllVerbs();
        peer.verb("bench-put", words -> List.of(put(client(peer, words), words)));
        peer.verb("bench-consume", words -> List.of(consume(clients(peer, words.get(0)), words)));
        peer.verb("bench-flow", words -> List.of(flow(client(peer, words), clients(peer, words.get(1)), words)));
        peer.verb("bench-offer", words -> List.of(offer(client(peer, words), words.get(1), number(words, 2), number(words, 3))));
        peer.verb("bench-poll", words -> List.of(poll(client(peer, words), words.get(1), number(words, 2))));
        peer.serve();
    }

    private static CuratorFramework client(Peer peer, List<String> words) {
        return peer.find(words.get(0), CuratorFramework.class);
    }

    private static List<CuratorFramework> clients(Peer peer, String names) {
        return Stream.of(names.split(","))
                .map(name -> peer.find(name, CuratorFramework.class))
                .toList();
    }

    private static int number(List<String> words, int position) {
        return Integer.parseInt(words.get(position));
    }

    /** Values of half to one and a half times as many bytes. */
    private static List<byte[]> payloads(int count, int bytes) {
        Random lengths = new Random(1);
        return IntStream.range(0, count)
                .mapToObj(number -> {
                    byte[] payload = new byte[bytes / 2 + lengths.nextInt(bytes + 1)];
                    Arrays.fill(payload, (byte) 'x');
                    return payload;
                })
                .toList();
    }

    private static void await(CountDownLatch left) throws InterruptedException {
        if (!left.await(LIMIT_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException(left.getCount() + " items were not seen within " + LIMIT_S + " s");
        }
    }

    private static long put(CuratorFramework client, List<String> words) throws Exception {
        String kind = words.get(1);
        int znodes = number(words, 3), each = number(words, 4);
        List<byte[]> payloads = payloads(znodes * each, number(words, 5));
        QueueBase<byte[]> queue = Queues.built(client, null, kind, words.get(2), words, null);
        Queues.Running running = new Queues.Running(queue, null, null);
        boolean listens = Boolean.parseBoolean(Peer.option(words, "listener", "false"));
        CountDownLatch left = new CountDownLatch(listens ? znodes : 0);
        if (listens) {
            queue.getPutListenerContainer().addListener(new QueuePutListener<byte[]>() {
                @Override
                public void putCompleted(byte[] item) {
                    left.countDown();
                }

                @Override
                public void putMultiCompleted(MultiItem<byte[]> several) {
                    left.countDown();
                }
            });
        }
        queue.start();
        long began = System.nanoTime();
        for (int number = 0; number < znodes; number++) {
            String how = kind.equals("id") ? "id" + number % 100 : kind.equals("delay") ? "1" : "" + number % 10;
            if (each == 1) {
                running.put(payloads.get(number), how);
            } else {
                Iterator<byte[]> rest = payloads.subList(number * each, (number + 1) * each).iterator();
                running.putMulti(() -> rest.hasNext() ? rest.next() : null, how);
            }
        }
        await(left);
        if (!queue.flushPuts(LIMIT_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException("not all was put");
        }
        long took = System.nanoTime() - began;
        queue.close();
        return took;
    }

    private static QueueConsumer<byte[]> consumer(Consumer<byte[]> work) {
        return new QueueConsumer<>() {
            @Override
            public void consumeMessage(byte[] message) {
                work.accept(message);
            }

            @Override
            public void stateChanged(CuratorFramework client, ConnectionState state) {}
        };
    }

    private static long consume(List<CuratorFramework> clients, List<String> words) throws Exception {
        String kind = words.get(1), path = words.get(2);
        int threads = number(words, 4);
        CountDownLatch left = new CountDownLatch(number(words, 5));
        List<ExecutorService> pools = new ArrayList<>();
        List<QueueBase<byte[]>> queues = new ArrayList<>();
        for (CuratorFramework client : clients) {
            ExecutorService pool = threads > 1 ? Executors.newFixedThreadPool(threads) : null;
            if (pool != null) {
                pools.add(pool);
            }
            List<String> options = List.of("lock=" + words.get(3));
            queues.add(Queues.built(client, consumer(message -> left.countDown()), kind, path, options, pool));
        }
        long began = System.nanoTime();
        for (QueueBase<byte[]> queue : queues) {
            queue.start();
        }
        await(left);
        long took = System.nanoTime() - began;
        Thread.sleep(50); // the last acknowledgement is on its way; closing would interrupt it
        for (QueueBase<byte[]> queue : queues) {
            queue.close();
        }
        pools.forEach(ExecutorService::shutdownNow);
        return took;
    }

    private static String flow(CuratorFramework client, List<CuratorFramework> clients, List<String> words) throws Exception {
        String path = words.get(2);
        int rate = number(words, 4), count = number(words, 5), slowMs = number(words, 6);
        CountDownLatch left = new CountDownLatch(count);
        ConcurrentLinkedQueue<Long> took = new ConcurrentLinkedQueue<>();
        List<QueueBase<byte[]>> queues = new ArrayList<>();
        List<String> options = List.of("lock=" + words.get(3));
        for (CuratorFramework each : clients) {
            boolean isSlow = queues.isEmpty() && slowMs > 0;
            queues.add(Queues.built(each, consumer(message -> {
                took.add(System.nanoTime() - ByteBuffer.wrap(message).getLong());
                left.countDown();
                if (isSlow) {
                    LockSupport.parkNanos(slowMs * 1_000_000L);
                }
            }), "plain", path, options, null));
        }
        QueueBase<byte[]> producer = Queues.built(client, null, "plain", path, List.of(), null);
        queues.add(producer);
        for (QueueBase<byte[]> queue : queues) {
            queue.start();
        }
        Queues.Running running = new Queues.Running(producer, null, null);
        long began = System.nanoTime();
        for (int number = 0; number < count; number++) {
            long due = began + number * 1_000_000_000L / rate;
            for (long now = System.nanoTime(); now < due; now = System.nanoTime()) {
                LockSupport.parkNanos(due - now);
            }
            running.put(ByteBuffer.allocate(8).putLong(System.nanoTime()).array(), "");
        }
        await(left);
        for (QueueBase<byte[]> queue : queues) {
            queue.close();
        }
        return took.stream().map(String::valueOf).collect(Collectors.joining(","));
    }

    private static long offer(CuratorFramework client, String path, int count, int bytes) throws Exception {
        SimpleDistributedQueue queue = new SimpleDistributedQueue(client, path);
        List<byte[]> payloads = payloads(count, bytes);
        long began = System.nanoTime();
        for (byte[] payload : payloads) {
            queue.offer(payload);
        }
        return System.nanoTime() - began;
    }

    private static long poll(CuratorFramework client, String path, int count) throws Exception {
        SimpleDistributedQueue queue = new SimpleDistributedQueue(client, path);
        long began = System.nanoTime();
        for (int number = 0; number < count; number++) {
            if (queue.poll() == null) {
                throw new IllegalStateException("only " + number + " items were there");
            }
        }
        return System.nanoTime() - began;
    }
}
