import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.RetryForever;

/** Sessions: {@code connect HANDLE ADDRESS [timeout=MS] [gzip=true]}. */
final class Clients {
    private Clients() {}

    static void teach(Peer peer) {
        peer.act("connect", arguments -> peer.remember(arguments.get(0), connected(arguments)));
    }

    private static CuratorFramework connected(List<String> arguments) throws InterruptedException {
        CuratorFrameworkFactory.Builder builder = CuratorFrameworkFactory.builder()
                .connectString(arguments.get(1))
                .sessionTimeoutMs(Peer.number(arguments, "timeout", 10_000))
                .connectionTimeoutMs(10_000)
                .retryPolicy(new RetryForever(50));
        if (Peer.says(arguments, "gzip")) {
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
