import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.SubscriptionType;

/** What was acknowledged does not come again, to the single message of a batch. */
final class Acknowledging {
    private final Cluster cluster;

    Acknowledging(Cluster cluster) {
        this.cluster = cluster;
    }

    @Scenario
    void partsOfBatchesStayAcknowledgedOverReconnects() throws Exception {
        String topic = Cluster.newTopic();
        ConsumerBuilder<String> consuming = cluster.consuming(topic).subscriptionType(SubscriptionType.Shared)
                .enableBatchIndexAcknowledgment(true);
        try (Producer<String> producer = cluster.batchProducer(topic)) {
            Cluster.send(producer, "m", 10);
        }
        try (Consumer<String> consumer = consuming.subscribe()) {
            List<Message<String>> messages = Cluster.receive(consumer, 10);
            for (int number = 0; number < 10; number += 2) {
                consumer.acknowledge(messages.get(number));
            }
        }
        List<String> odd = List.of("m1", "m3", "m5", "m7", "m9");
        try (Consumer<String> consumer = consuming.subscribe()) {
            Expect.equal(odd, Cluster.texts(Cluster.receive(consumer, 5)), "for the next consumer");
            Cluster.expectSilence(consumer);
            cluster.admin.topics().unload(topic);
            Expect.equal(odd, Cluster.texts(Cluster.receive(consumer, 5)), "after an unload");
        }
    }

    @Scenario
    void aCumulativeAcknowledgementInsideABatchHolds() throws Exception {
        String topic = Cluster.newTopic();
        ConsumerBuilder<String> consuming = cluster.consuming(topic).enableBatchIndexAcknowledgment(true);
        try (Producer<String> producer = cluster.batchProducer(topic)) {
            Cluster.send(producer, "a", 5);
            Cluster.send(producer, "b", 5);
        }
        try (Consumer<String> consumer = consuming.subscribe()) {
            consumer.acknowledgeCumulative(Cluster.receive(consumer, 7).get(6));
        }
        try (Consumer<String> consumer = consuming.subscribe()) {
            Expect.equal(List.of("b2", "b3", "b4"), Cluster.texts(Cluster.receive(consumer, 3)), "what is left");
        }
    }

    @Scenario
    void aReceiptSaysThatItIsDone() throws Exception {
        String topic = Cluster.newTopic();
        try (Consumer<String> consumer = cluster.consuming(topic).isAckReceiptEnabled(true).subscribe();
             Producer<String> producer = cluster.producer(topic)) {
            Cluster.send(producer, "m", 10);
            List<Message<String>> messages = Cluster.receive(consumer, 10);
            consumer.acknowledgeCumulative(messages.get(5));
            Expect.equal(4L, cluster.backlog(topic), "backlog after a cumulative one");
            consumer.acknowledge(messages.get(8));
            Expect.equal(3L, cluster.backlog(topic), "backlog after one more");
            consumer.acknowledge(messages.stream().map(Message::getMessageId).toList());
            Expect.equal(0L, cluster.backlog(topic), "backlog after a list");
        }
    }

    @Scenario
    void acknowledgementsInGroupsArriveWhenTheConsumerCloses() throws Exception {
        String topic = Cluster.newTopic();
        try (Producer<String> producer = cluster.producer(topic);
             Consumer<String> consumer = cluster.consuming(topic).subscriptionType(SubscriptionType.Shared)
                     .acknowledgmentGroupTime(1, TimeUnit.HOURS).subscribe()) {
            Cluster.send(producer, "m", 5);
            for (Message<String> message : Cluster.receive(consumer, 5)) {
                consumer.acknowledge(message);
            }
        }
        Expect.eventually(0L, () -> cluster.backlog(topic), "backlog");
    }

    @Scenario
    void unacknowledgedMessagesComeAgainWhenAskedFor() throws Exception {
        String topic = Cluster.newTopic();
        try (Producer<String> producer = cluster.producer(topic);
             Consumer<String> consumer = cluster.consumer(topic, SubscriptionType.Failover)) {
            List<MessageId> ids = Cluster.send(producer, "m", 5);
            Cluster.receive(consumer, 5);
            consumer.acknowledgeCumulative(ids.get(1));
            consumer.redeliverUnacknowledgedMessages();
            Expect.equal(Cluster.numbered("m", 2, 4), Cluster.texts(Cluster.receive(consumer, 3)), "what came again");
        }
    }
}
