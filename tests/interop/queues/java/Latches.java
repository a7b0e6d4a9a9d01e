import java.util.List;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.framework.recipes.leader.Participant;

/**
 * {@code latch HANDLE CLIENT PATH ID}, {@code participants HANDLE}, {@code has-leadership HANDLE}, {@code close-latch HANDLE}; events
 * {@code isLeader}, {@code notLeader}, and {@code closing} just before the latch begins to give its place back: from then on its owner knows
 * that it leads no more, although {@code notLeader} comes later.
 */
final class Latches {
    private Latches() {}

    static void teach(Peer peer) {
        peer.verb("latch", arguments -> {
            String handle = arguments.get(0);
            CuratorFramework client = peer.find(arguments.get(1), CuratorFramework.class);
            LeaderLatch latch = new LeaderLatch(client, arguments.get(2), arguments.get(3), LeaderLatch.CloseMode.NOTIFY_LEADER);
            latch.addListener(told(peer, handle));
            peer.remember(handle, latch);
            latch.start();
            return List.of();
        });
        peer.verb("has-leadership", arguments -> List.of(latch(peer, arguments).hasLeadership()));
        peer.verb("participants", arguments -> latch(peer, arguments).getParticipants().stream()
                .map(Participant::getId)
                .toList());
        peer.verb("leader", arguments -> List.of(latch(peer, arguments).getLeader().getId()));
        peer.verb("close-latch", arguments -> {
            LeaderLatch latch = peer.forget(arguments.get(0), LeaderLatch.class);
            peer.event(arguments.get(0), "closing", "");
            latch.close();
            return List.of();
        });
    }

    private static LeaderLatch latch(Peer peer, List<String> arguments) {
        return peer.find(arguments.get(0), LeaderLatch.class);
    }

    private static LeaderLatchListener told(Peer peer, String handle) {
        return new LeaderLatchListener() {
            @Override
            public void isLeader() {
                peer.event(handle, "isLeader", "");
            }

            @Override
            public void notLeader() {
                peer.event(handle, "notLeader", "");
            }
        };
    }
}
