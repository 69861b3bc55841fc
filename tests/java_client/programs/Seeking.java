import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.common.naming.TopicName;

/** Going to another place of a topic: by id, inside batches, by time, by a function for each partition. */
final class Seeking {
    private final Cluster cluster;

    Seeking(Cluster cluster) {
        this.cluster = cluster;
    }

    @Scenario
    void aConsumerGoesBehindAnId() throws Exception {
        String topic = Cluster.newTopic();
        try (Producer<String> producer = cluster.producer(topic);
             Consumer<String> consumer = cluster.consumer(topic, SubscriptionType.Exclusive)) {
            List<MessageId> ids = Cluster.send(producer, "m", 5);
            Cluster.receive(consumer, 5);
            consumer.seek(ids.get(1));
            Expect.equal(Cluster.numbered("m", 2, 4), Cluster.texts(Cluster.receive(consumer, 3)), "behind the second");
            consumer.seek(MessageId.earliest);
            Expect.equal(Cluster.numbered("m", 0, 4), Cluster.texts(Cluster.receive(consumer, 5)), "from the start");
            consumer.seek(MessageId.latest);
            Cluster.expectSilence(consumer);
            producer.send("new");
            Expect.equal("new", Cluster.receive(consumer).getValue(), "behind the end");
        }
    }

    @Scenario
    void aConsumerGoesToAnIdItself() throws Exception {
        String topic = Cluster.newTopic();
        try (Producer<String> producer = cluster.producer(topic);
             Consumer<String> consumer = cluster.consuming(topic).startMessageIdInclusive().subscribe()) {
            List<MessageId> ids = Cluster.send(producer, "m", 5);
            consumer.seek(ids.get(3));
            Expect.equal(List.of("m3", "m4"), Cluster.texts(Cluster.receive(consumer, 2)), "from the fourth on");
        }
    }

    @Scenario
    void aConsumerGoesIntoABatch() throws Exception {
        String topic = Cluster.newTopic();
        try (Producer<String> producer = cluster.batchProducer(topic);
             Consumer<String> exclusive = cluster.consuming(topic).subscriptionName("exclusive").subscribe();
             Consumer<String> inclusive = cluster.consuming(topic).subscriptionName("inclusive")
                     .startMessageIdInclusive().subscribe()) {
            List<MessageId> ids = Cluster.send(producer, "m", 10);
            exclusive.seek(ids.get(6));
            inclusive.seek(ids.get(6));
            Expect.equal(Cluster.numbered("m", 7, 9), Cluster.texts(Cluster.receive(exclusive, 3)), "behind the seventh");
            Expect.equal(Cluster.numbered("m", 6, 9), Cluster.texts(Cluster.receive(inclusive, 4)), "from the seventh on");
            Cluster.expectSilence(exclusive);
            Cluster.expectSilence(inclusive);
        }
    }

    @Scenario
    void aConsumerGoesToATime() throws Exception {
        String topic = Cluster.newTopic();
        try (Producer<String> producer = cluster.producer(topic);
             Consumer<String> consumer = cluster.consumer(topic, SubscriptionType.Exclusive)) {
            Cluster.send(producer, "old", 3);
            Thread.sleep(20);
            long timeMs = System.currentTimeMillis();
            Thread.sleep(20);
            Cluster.send(producer, "new", 3);
            consumer.seek(timeMs);
            Expect.equal(Cluster.numbered("new", 0, 2), Cluster.texts(Cluster.receive(consumer, 3)), "from that time on");
        }
    }

    @Scenario
    void aFunctionSaysWhereToGoInEachPartition() throws Exception {
        String topic = Cluster.newTopic();
        cluster.admin.topics().createPartitionedTopic(topic, 2);
        try (Producer<String> first = cluster.producer(topic + "-partition-0");
             Producer<String> second = cluster.producer(topic + "-partition-1");
             Consumer<String> consumer = cluster.consuming(topic).startMessageIdInclusive().subscribe()) {
            List<MessageId> ids = Cluster.send(first, "a", 5);
            Cluster.send(second, "b", 5);
            Cluster.receive(consumer, 10);
            consumer.seek(partition -> TopicName.getPartitionIndex(partition) == 0 ? ids.get(4) : MessageId.latest);
            Expect.equal("a4", Cluster.receive(consumer).getValue(), "the first partition's last");
            Cluster.expectSilence(consumer);
        }
    }

    @Scenario
    void aReaderKnowsAfterSeekingWhetherThereIsMore() throws Exception {
        String topic = Cluster.newTopic();
        try (Producer<String> producer = cluster.batchProducer(topic);
             Reader<String> reader = cluster.reader(topic, MessageId.latest)) {
            Expect.equal(false, reader.hasMessageAvailable(), "in an empty topic");
            List<MessageId> ids = Cluster.send(producer, "m", 5);
            reader.seek(ids.get(2));
            Expect.equal(true, reader.hasMessageAvailable(), "inside the batch");
            Expect.equal(List.of("m3", "m4"), Cluster.texts(Cluster.read(reader)), "behind the third");
            reader.seek(ids.get(4));
            Expect.equal(false, reader.hasMessageAvailable(), "behind the last");
            reader.seek(MessageId.earliest);
            Expect.equal(Cluster.numbered("m", 0, 4), Cluster.texts(Cluster.read(reader)), "from the start");
            reader.seek(System.currentTimeMillis() + TimeUnit.HOURS.toMillis(1));
            Expect.equal(false, reader.hasMessageAvailable(), "in the future");
        }
    }
}
