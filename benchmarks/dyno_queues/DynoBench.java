import com.fasterxml.jackson.annotation.JsonInclude.Include;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.netflix.dyno.queues.DynoQueue;
import com.netflix.dyno.queues.Message;
import com.netflix.dyno.queues.redis.RedisDynoQueue;
import com.netflix.dyno.queues.redis.conn.JedisProxy;
import com.netflix.dyno.queues.redis.sharding.RoundRobinStrategy;
import com.netflix.dyno.queues.redis.v2.RedisPipelineQueue;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPool;
import redis.clients.jedis.JedisPoolConfig;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.commands.JedisCommands;

/**
 * Netflix Dyno-queues for {@code benchmarks/dyno.py}: a request a line on stdin, fields parted by
 * tabs, an answer a line on stdout. RECIPE is {@code v1} or {@code v2}; times are nanoseconds.
 *
 * <pre>
 * push   RECIPE QUEUE COUNT EACH BYTES         until all are pushed, EACH a call
 * fill   RECIPE QUEUE COUNT BYTES              the same keys by one pipeline, not measured
 * drain  RECIPE QUEUE COUNT EACH               until all are popped and acknowledged
 * wake   RECIPE QUEUE COUNT PAUSE_MS WAIT_MS   from each push to the return of the pop that has it
 * order  RECIPE QUEUE PRIORITY,...             the numbers of the messages, as they are popped
 * beside RECIPE QUEUE RATE COUNT TAKES SLOW_MS LEASE_MS WAIT_MS
 *                                              from each push to its ack, by a free consumer beside
 *                                              one that takes SLOW_MS a message, or, if that is 0,
 *                                              hangs with the first TAKES messages for good
 * </pre>
 */
final class DynoBench {
    private static final String PREFIX = "bench";
    private static final String SHARD = "0";
    private static final int LONG_MS = 3_600_000;

    private final JedisPool pool;

    private DynoBench(String host, int port) {
        JedisPoolConfig config = new JedisPoolConfig();
        config.setMaxTotal(16);
        config.setMaxIdle(16);
        pool = new JedisPool(config, host, port, 600_000);
    }

    public static void main(String[] arguments) throws Exception {
        DynoBench bench = new DynoBench(arguments[0], Integer.parseInt(arguments[1]));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        out.println("ready");
        BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                out.println("ok\t" + bench.answer(line.split("\t")));
            } catch (Throwable problem) { // whoever asked waits for a line
                problem.printStackTrace();
                out.println("error\t" + problem.toString().replaceAll("\\s", " "));
            }
        }
        Runtime.getRuntime().halt(0); // the queues' threads would keep it alive
    }

    private Object answer(String[] words) throws Exception {
        String recipe = words[1], name = words[2];
        int[] numbers = words[0].equals("order")
                ? new int[0]
                : Arrays.stream(words).skip(3).mapToInt(Integer::parseInt).toArray();
        if (words[0].equals("beside")) {
            return beside(recipe, name, numbers);
        }
        try (DynoQueue queue = queue(recipe, name, LONG_MS)) {
            switch (words[0]) {
                case "push":
                    return push(queue, messages(numbers[0], numbers[2]), numbers[1]);
                case "fill":
                    return fill(recipe, queue, name, messages(numbers[0], numbers[1]));
                case "drain":
                    return drain(queue, numbers[0], numbers[1]);
                case "wake":
                    return wake(recipe, queue, name, numbers[0], numbers[1], numbers[2]);
                case "order":
                    return order(queue, words[3].split(","));
                default:
                    throw new IllegalArgumentException(words[0]);
            }
        }
    }

    /** With one shard; each consumer has its own, as each would in a process of its own. */
    private DynoQueue queue(String recipe, String name, int leaseMs) {
        if (recipe.equals("v2")) {
            return new RedisPipelineQueue(
                    PREFIX, name, SHARD, leaseMs, leaseMs, new JedisProxy(pool));
        }
        JedisCommands jedis = pooled();
        RoundRobinStrategy strategy = new RoundRobinStrategy();
        return new RedisDynoQueue(PREFIX, name, Set.of(SHARD), SHARD, leaseMs, strategy, false)
                .withQuorumConn(jedis)
                .withNonQuorumConn(jedis)
                .withUnackTime(leaseMs);
    }

    /** V1 wants a connection that several threads may use: each command gets one of the pool. */
    private JedisCommands pooled() {
        InvocationHandler borrowing = (self, method, values) -> {
            try (Jedis jedis = pool.getResource()) {
                return method.invoke(jedis, values);
            } catch (InvocationTargetException wrapped) {
                throw wrapped.getCause();
            }
        };
        Class<?>[] types = {JedisCommands.class};
        return (JedisCommands)
                Proxy.newProxyInstance(DynoBench.class.getClassLoader(), types, borrowing);
    }

    private static List<Message> messages(int count, int bytes) {
        String payload = "x".repeat(bytes);
        return IntStream.range(0, count)
                .mapToObj(number -> new Message(UUID.randomUUID().toString(), payload))
                .collect(Collectors.toList());
    }

    private static long push(DynoQueue queue, List<Message> messages, int each) {
        long began = System.nanoTime();
        for (int at = 0; at < messages.size(); at += each) {
            queue.push(messages.subList(at, Math.min(at + each, messages.size())));
        }
        return System.nanoTime() - began;
    }

    private long fill(String recipe, DynoQueue queue, String name, List<Message> messages)
            throws Exception {
        if (recipe.equals("v2")) {
            return push(queue, messages, 10_000);
        }
        ObjectMapper json = new ObjectMapper();
        json.setSerializationInclusion(Include.NON_EMPTY);
        String payloads = PREFIX + ".MESSAGE." + name;
        String ready = PREFIX + ".QUEUE." + name + "." + SHARD;
        try (Jedis jedis = pool.getResource()) {
            for (int at = 0; at < messages.size(); at += 10_000) {
                Pipeline pipe = jedis.pipelined();
                for (Message one : messages.subList(at, Math.min(at + 10_000, messages.size()))) {
                    pipe.hset(payloads, one.getId(), json.writeValueAsString(one));
                    pipe.zadd(ready, System.currentTimeMillis(), one.getId());
                }
                pipe.sync();
            }
        }
        return 0;
    }

    private static void acknowledge(DynoQueue queue, List<Message> popped) {
        if (popped.size() > 1) {
            queue.ack(popped);
        } else if (!popped.isEmpty() && !queue.ack(popped.get(0).getId())) {
            throw new IllegalStateException("not acknowledged");
        }
    }

    private static long drain(DynoQueue queue, int count, int each) {
        long began = System.nanoTime();
        for (int left = count; left > 0; ) {
            List<Message> popped = queue.pop(Math.min(each, left), 1, TimeUnit.SECONDS);
            if (popped.isEmpty()) {
                throw new IllegalStateException(left + " were not delivered");
            }
            acknowledge(queue, popped);
            left -= popped.size();
        }
        return System.nanoTime() - began;
    }

    private String wake(
            String recipe, DynoQueue producer, String name, int count, int pauseMs, int waitMs)
            throws Exception {
        List<Long> took = Collections.synchronizedList(new ArrayList<>());
        try (DynoQueue consumer = queue(recipe, name, LONG_MS)) {
            for (int number = 0; number < count; number++) {
                CountDownLatch begins = new CountDownLatch(1);
                long[] popped = new long[1];
                Thread waiting = new Thread(() -> {
                    begins.countDown();
                    List<Message> found = List.of();
                    while (found.isEmpty()) {
                        found = consumer.pop(1, waitMs, TimeUnit.MILLISECONDS);
                    }
                    popped[0] = System.nanoTime();
                    acknowledge(consumer, found);
                });
                waiting.start();
                begins.await();
                Thread.sleep(pauseMs + number % 10);
                long pushed = System.nanoTime();
                producer.push(messages(1, 100));
                waiting.join();
                took.add(popped[0] - pushed);
            }
        }
        return told(took);
    }

    private static String order(DynoQueue queue, String[] priorities) throws Exception {
        List<Message> given = new ArrayList<>();
        for (int number = 0; number < priorities.length; number++) {
            Message one = new Message(UUID.randomUUID().toString(), String.valueOf(number));
            one.setPriority(Integer.parseInt(priorities[number]));
            given.add(one);
        }
        push(queue, given, 1);
        Thread.sleep(50);
        List<Long> numbers = new ArrayList<>();
        while (numbers.size() < priorities.length) {
            List<Message> popped = queue.pop(1, 1, TimeUnit.SECONDS);
            acknowledge(queue, popped);
            popped.forEach(one -> numbers.add(Long.valueOf(one.getPayload())));
        }
        return told(numbers);
    }

    private String beside(String recipe, String name, int[] given) throws Exception {
        int rate = given[0], count = given[1], takes = given[2];
        int slowMs = given[3], leaseMs = given[4], waitMs = given[5];
        CountDownLatch left = new CountDownLatch(count);
        List<Long> took = Collections.synchronizedList(new ArrayList<>());
        try (DynoQueue bad = queue(recipe, name, leaseMs);
                DynoQueue free = queue(recipe, name, leaseMs);
                DynoQueue producer = queue(recipe, name, leaseMs)) {
            Thread slow = new Thread(() -> {
                while (slowMs > 0 && left.getCount() > 0) {
                    for (Message one : bad.pop(1, waitMs, TimeUnit.MILLISECONDS)) {
                        LockSupport.parkNanos(slowMs * 1_000_000L);
                        done(bad, one, took, left);
                    }
                }
            });
            Thread second = new Thread(() -> {
                while (left.getCount() > 0) {
                    for (Message one : free.pop(1, waitMs, TimeUnit.MILLISECONDS)) {
                        done(free, one, took, left);
                    }
                }
            });
            slow.start();
            if (slowMs > 0) {
                second.start();
            }
            long began = System.nanoTime();
            for (int number = 0; number < count; number++) {
                long due = began + number * 1_000_000_000L / rate;
                for (long now = System.nanoTime(); now < due; now = System.nanoTime()) {
                    LockSupport.parkNanos(due - now);
                }
                String id = UUID.randomUUID().toString();
                producer.push(List.of(new Message(id, "" + System.nanoTime())));
                if (slowMs == 0 && number == takes - 1) {
                    bad.pop(takes, waitMs, TimeUnit.MILLISECONDS);
                    second.start();
                }
            }
            if (!left.await(120, TimeUnit.SECONDS)) {
                throw new IllegalStateException(left.getCount() + " were not done in time");
            }
            slow.join();
            second.join();
        }
        return told(took);
    }

    private static void done(
            DynoQueue queue, Message one, List<Long> took, CountDownLatch left) {
        if (queue.ack(one.getId())) {
            took.add(System.nanoTime() - Long.parseLong(one.getPayload()));
            left.countDown();
        }
    }

    private static String told(List<Long> numbers) {
        return numbers.stream().map(String::valueOf).collect(Collectors.joining(","));
    }
}
