import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.RetryForever;
import org.apache.zookeeper.ZooKeeper;

/** Sessions: {@code connect HANDLE ADDRESS [timeout=MS] [gzip=true]}, {@code session HANDLE}, {@code disconnect HANDLE}. */
final class Clients {
    private Clients() {}

    static void teach(Peer peer) {
        peer.verb("connect", arguments -> {
            peer.remember(arguments.get(0), connected(arguments));
            return List.of();
        });
        peer.verb("session", arguments -> {
            ZooKeeper session = peer.find(arguments.get(0), CuratorFramework.class).getZookeeperClient().getZooKeeper();
            return List.of(Long.toHexString(session.getSessionId()), Peer.hex(session.getSessionPasswd()));
        });
        peer.verb("disconnect", arguments -> {
            peer.forget(arguments.get(0), CuratorFramework.class).close();
            return List.of();
        });
    }

    static CuratorFramework connected(List<String> arguments) throws InterruptedException {
        CuratorFrameworkFactory.Builder builder = CuratorFrameworkFactory.builder()
                .connectString(arguments.get(1))
                .sessionTimeoutMs(Integer.parseInt(Peer.option(arguments, "timeout", "10000")))
                .connectionTimeoutMs(10000)
                .retryPolicy(new RetryForever(50));
        if (Boolean.parseBoolean(Peer.option(arguments, "gzip", "false"))) {
            builder.enableCompression();
        }
        CuratorFramework client = builder.build();
        client.start();
        if (!client.blockUntilConnected(20, TimeUnit.SECONDS)) {
            client.close();
            throw new IllegalStateException("not connected to " + arguments.get(1) + " within 20 s");
        }
        return client;
    }
}
