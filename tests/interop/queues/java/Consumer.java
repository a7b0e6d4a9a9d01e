import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.state.ConnectionState;

/** Tells of every item; with {@code fail=TIMES} fails so often first, with {@code held=true} waits with each item in hand. */
final class Consumer implements QueueConsumer<byte[]> {
    private final Peer peer;
    private final String handle;
    private final AtomicInteger failures;
    private volatile CountDownLatch gate;

    private Consumer(Peer peer, List<String> arguments) {
        this.peer = peer;
        handle = arguments.get(0);
        failures = new AtomicInteger(Peer.number(arguments, "fail", 0));
        gate = new CountDownLatch(Peer.says(arguments, "held") ? 1 : 0);
    }

    /** One for a queue with {@code consume=true}, else none. */
    static Consumer of(Peer peer, List<String> arguments) {
        return Peer.says(arguments, "consume") ? new Consumer(peer, arguments) : null;
    }

    void release() {
        gate.countDown();
    }

    /** Let what is held go on, and hold what comes next. */
    void step() {
        CountDownLatch former = gate;
        gate = new CountDownLatch(1);
        former.countDown();
    }

    @Override
    public void consumeMessage(byte[] message) throws Exception {
        CountDownLatch seen = gate;
        if (seen.getCount() > 0) {
            peer.event(handle, "held", Peer.hex(message));
            seen.await();
        }
        if (failures.getAndUpdate(left -> Math.max(0, left - 1)) > 0) {
            throw new IllegalStateException("told to fail");
        }
        peer.event(handle, "item", Peer.hex(message));
    }

    @Override
    public void stateChanged(CuratorFramework client, ConnectionState state) {}
}
