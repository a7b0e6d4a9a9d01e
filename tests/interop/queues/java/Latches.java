import java.util.List;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.framework.recipes.leader.Participant;

/** {@code latch HANDLE CLIENT PATH ID}, {@code participants HANDLE}, {@code leader HANDLE}; events {@code isLeader}, {@code notLeader}. */
final class Latches {
    private Latches() {}

    static void teach(Peer peer) {
        peer.act("latch", arguments -> {
            String handle = arguments.get(0);
            CuratorFramework client = peer.find(arguments.get(1), CuratorFramework.class);
            LeaderLatch latch = new LeaderLatch(client, arguments.get(2), arguments.get(3), LeaderLatch.CloseMode.NOTIFY_LEADER);
            latch.addListener(told(peer, handle));
            peer.remember(handle, latch);
            latch.start();
        });
        peer.verb("participants", arguments -> peer.find(arguments.get(0), LeaderLatch.class).getParticipants().stream()
                .map(Participant::getId)
                .toList());
        peer.verb("leader", arguments -> List.of(peer.find(arguments.get(0), LeaderLatch.class).getLeader().getId()));
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
