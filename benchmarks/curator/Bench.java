import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.MultiItem;
import org.apache.curator.framework.recipes.queue.QueueBase;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueuePutListener;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.state.ConnectionState;

/**
 * Curator at its best, for {@code benchmarks/queues.py}; each answers with nanoseconds.
 *
 * {@code bench-put CLIENT PATH COUNT BYTES}, {@code bench-put-multi CLIENT PATH ZNODES ITEMS BYTES}: in the background, until all are stored.
 * {@code bench-consume CLIENT,... PATH LOCK_PATH THREADS COUNT}: from start to the last item, by as many consumers as clients; no lock path: "".
 * {@code bench-offer CLIENT PATH COUNT BYTES}, {@code bench-poll CLIENT PATH COUNT}: SimpleDistributedQueue, one after the other.
 */
final class Bench {
    private static final long LIMIT_S = 600;

    private Bench() {}

    public static void main(String[] arguments) throws IOException {
        Peer peer = Peer.withAllVerbs();
        peer.verb("bench-put", words -> List.of(put(client(peer, words), words.get(1), number(words, 2), 1, number(words, 3))));
        peer.verb(
                "bench-put-multi",
                words -> List.of(put(client(peer, words), words.get(1), number(words, 2), number(words, 3), number(words, 4))));
        peer.verb("bench-consume", words -> {
            List<CuratorFramework> clients = Stream.of(words.get(0).split(","))
                    .map(name -> peer.find(name, CuratorFramework.class))
                    .toList();
            return List.of(consume(clients, words.get(1), words.get(2), number(words, 3), number(words, 4)));
        });
        peer.verb("bench-offer", words -> List.of(offer(client(peer, words), words.get(1), number(words, 2), number(words, 3))));
        peer.verb("bench-poll", words -> List.of(poll(client(peer, words), words.get(1), number(words, 2))));
        peer.serve();
    }

    private static CuratorFramework client(Peer peer, List<String> words) {
        return peer.find(words.get(0), CuratorFramework.class);
    }

    private static int number(List<String> words, int position) {
        return Integer.parseInt(words.get(position));
    }

    private static byte[] payload(int bytes) {
        byte[] payload = new byte[bytes];
        Arrays.fill(payload, (byte) 'x');
        return payload;
    }

    private static void await(CountDownLatch left) throws InterruptedException {
        if (!left.await(LIMIT_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException(left.getCount() + " items were not seen within " + LIMIT_S + " s");
        }
    }

    private static long put(CuratorFramework client, String path, int znodes, int items, int bytes) throws Exception {
        DistributedQueue<byte[]> queue = (DistributedQueue<byte[]>) Queues.built(client, null, "plain", path, List.of(), null);
        CountDownLatch left = new CountDownLatch(znodes);
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
        byte[] payload = payload(bytes);
        queue.start();
        long began = System.nanoTime();
        for (int number = 0; number < znodes; number++) {
            if (items == 1) {
                queue.put(payload);
            } else {
                queue.putMulti(times(payload, items));
            }
        }
        await(left);
        long took = System.nanoTime() - began;
        queue.close();
        return took;
    }

    private static MultiItem<byte[]> times(byte[] payload, int items) {
        Iterator<byte[]> rest = Stream.generate(() -> payload).limit(items).iterator();
        return () -> rest.hasNext() ? rest.next() : null;
    }

    private static long consume(List<CuratorFramework> clients, String path, String lock, int threads, int count)
            throws Exception {
        CountDownLatch left = new CountDownLatch(count);
        QueueConsumer<byte[]> consumer = new QueueConsumer<>() {
            @Override
            public void consumeMessage(byte[] message) {
                left.countDown();
            }

            @Override
            public void stateChanged(CuratorFramework client, ConnectionState state) {}
        };
        List<ExecutorService> pools = new ArrayList<>();
        List<QueueBase<byte[]>> queues = new ArrayList<>();
        for (CuratorFramework client : clients) {
            ExecutorService pool = threads > 1 ? Executors.newFixedThreadPool(threads) : null;
            if (pool != null) {
                pools.add(pool);
            }
            queues.add(Queues.built(client, consumer, "plain", path, List.of("lock=" + lock), pool));
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

    private static long offer(CuratorFramework client, String path, int count, int bytes) throws Exception {
        SimpleDistributedQueue queue = new SimpleDistributedQueue(client, path);
        byte[] payload = payload(bytes);
        long began = System.nanoTime();
        for (int number = 0; number < count; number++) {
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
