import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.state.ConnectionState;

/** Tells of every item; fails as often as it is told to, and waits while it is held. */
final class Consumer implements QueueConsumer<byte[]> {
    private final Peer peer;
    private final String handle;
    private final AtomicInteger failures = new AtomicInteger();
    private volatile CountDownLatch gate = new CountDownLatch(0);

    Consumer(Peer peer, String handle) {
        this.peer = peer;
        this.handle = handle;
    }

    void failNext(int times) {
        failures.set(times);
    }

    void hold() {
        gate = new CountDownLatch(1);
    }

    void release() {
        gate.countDown();
    }

    /** Let what is held go on, and hold what comes next. */
    void step() {
        CountDownLatch former = gate;
        hold();
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
            peer.event(handle, "failed", Peer.hex(message));
            throw new IllegalStateException("told to fail");
        }
        peer.event(handle, "item", Peer.hex(message));
    }

    @Override
    public void stateChanged(CuratorFramework client, ConnectionState state) {
        peer.event(handle, "state", state.name());
    }
}
