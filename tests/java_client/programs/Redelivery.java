import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.impl.MultiplierRedeliveryBackoff;

/** Messages that come late, or again. */
final class Redelivery {
    private final Cluster cluster;

    Redelivery(Cluster cluster) {
        this.cluster = cluster;
    }

    @Scenario
    void delayedMessagesAreNeverEarly() throws Exception {
        String topic = Cluster.newTopic();
        try (Consumer<String> consumer = cluster.consumer(topic, SubscriptionType.Shared);
             Producer<String> producer = cluster.producer(topic)) {
            for (int number = 20; number > 0; number--) {
                long dueMs = System.currentTimeMillis() + 100L * number;
                producer.newMessage().property("due", String.valueOf(dueMs)).value("m" + number).deliverAt(dueMs).sendAsync();
            }
            Set<String> found = new HashSet<>();
            for (int number = 0; number < 20; number++) {
                Message<String> message = Cluster.receive(consumer);
                long earlyMs = Long.parseLong(message.getProperty("due")) - System.currentTimeMillis();
                Expect.that(earlyMs <= 0, message.getValue() + " came " + earlyMs + " ms early");
                found.add(message.getValue());
            }
            Expect.equal(Set.copyOf(Cluster.numbered("m", 1, 20)), found, "what came");
        }
    }

    @Scenario
    void refusedMessagesComeBackLaterEachTime() throws Exception {
        String topic = Cluster.newTopic();
        try (Consumer<String> consumer = cluster.consuming(topic).subscriptionType(SubscriptionType.Shared)
                .negativeAckRedeliveryBackoff(MultiplierRedeliveryBackoff.builder()
                        .minDelayMs(200).maxDelayMs(800).multiplier(2).build()).subscribe();
             Producer<String> producer = cluster.producer(topic)) {
            producer.send("one");
            Message<String> message = Cluster.receive(consumer);
            for (int count = 0; count < 4; count++) {
                Expect.equal(count, message.getRedeliveryCount(), "how often it was given back");
                long refusedMs = System.currentTimeMillis();
                consumer.negativeAcknowledge(message);
                message = Cluster.receive(consumer);
                long delayMs = Math.min(200 << count, 800) * 2 / 3; // the client rounds, by its timer's ticks
                long afterMs = System.currentTimeMillis() - refusedMs;
                Expect.that(afterMs > delayMs, "it came back after " + afterMs + " ms, before " + delayMs + " ms");
            }
            consumer.acknowledge(message);
        }
    }

    @Scenario
    void whatIsNotAcknowledgedInTimeComesAgain() throws Exception {
        String topic = Cluster.newTopic();
        try (Consumer<String> consumer = cluster.consuming(topic).subscriptionType(SubscriptionType.Shared)
                .ackTimeout(3, TimeUnit.SECONDS).ackTimeoutTickTime(200, TimeUnit.MILLISECONDS).subscribe();
             Producer<String> producer = cluster.producer(topic)) {
            Cluster.send(producer, "m", 2);
            List<Message<String>> messages = Cluster.receive(consumer, 2);
            consumer.acknowledge(messages.get(0));
            Message<String> again = Cluster.receive(consumer);
            Expect.equal("m1", again.getValue(), "what came again");
            Expect.equal(1, again.getRedeliveryCount(), "how often it was given back");
            consumer.acknowledge(again);
            Cluster.expectSilence(consumer, 4000);
        }
    }
}
