import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.SubscriptionType;

/** Brokers that die and topics that move while they are used: nothing confirmed is lost, its order stays. */
final class Failures {
    private static final int COUNT = 4800;
    private static final int PATIENCE_S = 60;

    private final Cluster cluster;

    Failures(Cluster cluster) {
        this.cluster = cluster;
    }

    /** Anything that stops a topic being served for a while. */
    private interface Blow {
        void strike() throws Exception;
    }

    @Scenario
    void aKilledBrokerLosesNothing() throws Exception {
        String topic = Cluster.newTopic();
        sendWhile(topic, 1, cluster::killBroker);
    }

    @Scenario
    void unloadingATopicLosesNothing() throws Exception {
        String topic = Cluster.newTopic();
        sendWhile(topic, 3, () -> cluster.admin.topics().unload(topic));
    }

    @Scenario
    void unloadingANamespaceLosesNothing() throws Exception {
        String topic = Cluster.newTopic();
        sendWhile(topic, 1, () -> cluster.admin.namespaces().unload(Cluster.NAMESPACE));
    }

    @Scenario
    void whatWasAcknowledgedBeforeAKillDoesNotComeAgain() throws Exception {
        String topic = Cluster.newTopic();
        try (Producer<String> producer = cluster.producer(topic);
             Consumer<String> consumer = cluster.consuming(topic).subscriptionType(SubscriptionType.Shared)
                     .isAckReceiptEnabled(true).subscribe()) {
            Cluster.send(producer, "m", 10);
            List<Message<String>> messages = Cluster.receive(consumer, 10);
            for (int number = 0; number < 10; number += 2) {
                consumer.acknowledge(messages.get(number));
            }
            cluster.killBroker();
            List<String> again = Cluster.texts(Cluster.receive(consumer, 5));
            Expect.equal(List.of("m1", "m3", "m5", "m7", "m9"), again, "what came again");
            Cluster.expectSilence(consumer);
        }
    }

    /** Sends without waiting, is struck in between, and reads all of it back. */
    private void sendWhile(String topic, int blows, Blow blow) throws Exception {
        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
        try (Consumer<String> consumer = cluster.consumer(topic, SubscriptionType.Exclusive);
             Producer<String> producer = cluster.producing(topic).blockIfQueueFull(true)
                     .sendTimeout(PATIENCE_S, TimeUnit.SECONDS).create()) {
            for (int number = 0; number < COUNT; number++) {
                if (number > 0 && number % (COUNT / (blows + 1)) == 0) {
                    blow.strike();
                }
                sent.add(producer.sendAsync("m" + number));
            }
            CompletableFuture.allOf(sent.toArray(CompletableFuture[]::new)).get(PATIENCE_S, TimeUnit.SECONDS);
            expectInOrder(topic);
            expectAllReceived(consumer);
        }
    }

    /** All messages stand there in order; one that was sent twice, for its receipt was lost, may stand there twice. */
    private void expectInOrder(String topic) throws Exception {
        try (Reader<String> reader = cluster.reader(topic, MessageId.earliest)) {
            List<Message<String>> messages = new ArrayList<>();
            try {
                Cluster.read(reader, messages);
                expectInOrder(messages);
            } catch (AssertionError missed) {
                String last = messages.isEmpty() ? "none" : messages.get(messages.size() - 1).getMessageId().toString();
                throw new AssertionError(missed.getMessage() + "\nread last: " + last + cluster.scene(topic, reader), missed);
            }
        }
    }

    private static void expectInOrder(List<Message<String>> messages) {
        List<Integer> firsts = Cluster.texts(messages).stream()
                .map(text -> Integer.valueOf(text.substring(1))).distinct().toList();
        for (int number = 0; number < Math.min(COUNT, firsts.size()); number++) {
            Expect.equal(number, firsts.get(number), "message in place " + number + " of " + messages.size());
        }
        Expect.equal(COUNT, firsts.size(), "messages stored");
    }

    private void expectAllReceived(Consumer<String> consumer) throws Exception {
        boolean[] isReceived = new boolean[COUNT];
        int left = COUNT;
        while (left > 0) {
            Message<String> message = Cluster.receive(consumer);
            int number = Integer.parseInt(message.getValue().substring(1));
            left -= isReceived[number] ? 0 : 1;
            isReceived[number] = true;
            consumer.acknowledge(message);
        }
    }
}
