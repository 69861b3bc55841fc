import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/** Dead letters and retry letters. They are bytes: a schema would want a registry. */
final class Letters {
    private final Cluster cluster;

    Letters(Cluster cluster) {
        this.cluster = cluster;
    }

    @Scenario
    void whatIsRefusedTooOftenBecomesADeadLetter() throws Exception {
        String topic = Cluster.newTopic();
        String letters = topic + "-letters";
        try (Consumer<byte[]> consumer = consuming(topic).negativeAckRedeliveryDelay(50, TimeUnit.MILLISECONDS)
                .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(2).deadLetterTopic(letters)
                        .initialSubscriptionName("kept").build()).subscribe();
             Producer<byte[]> producer = cluster.client.newProducer().topic(topic).create()) {
            producer.newMessage().key("k").property("p", "v").value(bytes("bad")).send();
            producer.send(bytes("good"));
            int refusals = 0;
            while (refusals < 3) {
                Message<byte[]> message = receive(consumer);
                if (message.hasKey()) {
                    refusals++;
                    consumer.negativeAcknowledge(message);
                } else {
                    consumer.acknowledge(message);
                }
            }
            Expect.eventually(true, () -> cluster.admin.topics().getList(Cluster.NAMESPACE).contains(letters), "it is made");
            // Made together with the topic, so that no letter is lost before a consumer reads them.
            Expect.equal(List.of("kept"), cluster.admin.topics().getSubscriptions(letters), "its subscriptions");
            try (Consumer<byte[]> reader = consuming(letters).subscriptionName("kept").subscribe()) {
                Message<byte[]> letter = receive(reader);
                Expect.equal("bad", text(letter), "the letter");
                Expect.equal("k", letter.getKey(), "its key");
                Expect.equal("v", letter.getProperty("p"), "its property");
                Expect.equal(topic, letter.getProperty("REAL_TOPIC"), "where it comes from");
            }
            Expect.eventually(0L, () -> cluster.backlog(topic), "what is left of the topic");
        }
    }

    @Scenario
    void whatIsConsumedLaterComesByTheRetryTopic() throws Exception {
        String topic = Cluster.newTopic();
        String letters = topic + "-letters";
        DeadLetterPolicy policy = DeadLetterPolicy.builder().maxRedeliverCount(2)
                .retryLetterTopic(topic + "-later").deadLetterTopic(letters).build();
        try (Consumer<byte[]> reader = consuming(letters).subscribe();
             Consumer<byte[]> consumer = consuming(topic).enableRetry(true).deadLetterPolicy(policy).subscribe();
             Producer<byte[]> producer = cluster.client.newProducer().topic(topic).create()) {
            producer.send(bytes("one"));
            for (int count = 0; count < 3; count++) {
                Message<byte[]> message = receive(consumer);
                Expect.equal("one", text(message), "the message");
                Expect.equal(count == 0 ? null : String.valueOf(count), message.getProperty("RECONSUMETIMES"), "how often");
                consumer.reconsumeLater(message, 300, TimeUnit.MILLISECONDS);
            }
            Expect.equal("one", text(receive(reader)), "the dead letter");
            Expect.eventually(0L, () -> cluster.backlog(topic), "what is left of the topic");
            Expect.eventually(0L, () -> cluster.backlog(topic + "-later"), "what is left of the retry topic");
        }
    }

    private ConsumerBuilder<byte[]> consuming(String topic) {
        return cluster.client.newConsumer().topic(topic).subscriptionName("s")
                .subscriptionType(SubscriptionType.Shared)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest);
    }

    private static Message<byte[]> receive(Consumer<byte[]> consumer) throws Exception {
        Message<byte[]> message = consumer.receive(Cluster.PATIENCE_S, TimeUnit.SECONDS);
        Expect.that(message != null, "no message within " + Cluster.PATIENCE_S + " s");
        return message;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(Message<byte[]> message) {
        return new String(message.getData(), StandardCharsets.UTF_8);
    }
}
