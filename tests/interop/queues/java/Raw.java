import org.apache.curator.framework.recipes.queue.QueueSerializer;

/** Bytes as they are. */
final class Raw implements QueueSerializer<byte[]> {
    @Override
    public byte[] serialize(byte[] item) {
        return item;
    }

    @Override
    public byte[] deserialize(byte[] bytes) {
        return bytes;
    }
}
