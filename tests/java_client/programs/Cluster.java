import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.common.policies.data.ManagedLedgerInternalStats;

/** The cluster under test, and what every theme does with one. */
final class Cluster {
    static final String NAMESPACE = "public/default";
    static final int PATIENCE_S = 60;
    /** So long is waited for what must not come. */
    static final int SILENCE_MS = 300;
    private static final AtomicInteger NAMES = new AtomicInteger();

    final PulsarClient client;
    final PulsarAdmin admin;
    private final Path endpoints;

    /** `endpoints` is what the standalone wrote about itself. */
    Cluster(Path endpoints) throws Exception {
        this.endpoints = endpoints;
        client = newClient();
        admin = PulsarAdmin.builder().serviceHttpUrl(endpoint("web_service_url")).build();
    }

    /** A client with connections of its own. */
    PulsarClient newClient() throws Exception {
        return PulsarClient.builder().serviceUrl(serviceUrl()).build();
    }

    String serviceUrl() throws Exception {
        return endpoint("service_url");
    }

    /** Kills the broker without a warning; the standalone starts another. */
    void killBroker() throws Exception {
        Matcher pid = Pattern.compile("\"broker\": *\\{[^}]*?\"pid\": *(\\d+)").matcher(Files.readString(endpoints));
        Expect.that(pid.find(), "no process id of the broker in " + endpoints);
        ProcessHandle.of(Long.parseLong(pid.group(1))).orElseThrow().destroyForcibly();
    }

    private String endpoint(String name) throws Exception {
        Matcher found = Pattern.compile("\"" + name + "\": *\"([^\"]*)\"").matcher(Files.readString(endpoints));
        Expect.that(found.find(), "no " + name + " in " + endpoints);
        return found.group(1);
    }

    /** The name of a topic that no test has used before. */
    static String newTopic() {
        return "persistent://" + NAMESPACE + "/" + newName("topic");
    }

    static String newName(String kind) {
        return kind + "-" + NAMES.incrementAndGet() + "-" + ProcessHandle.current().pid();
    }

    // Clients of the plainest kind

    ProducerBuilder<String> producing(String topic) {
        return client.newProducer(Schema.STRING).topic(topic);
    }

    /** A producer that sends every message alone. */
    Producer<String> producer(String topic) throws Exception {
        return producing(topic).enableBatching(false).create();
    }

    /** A producer whose batches end where it is flushed. */
    Producer<String> batchProducer(String topic) throws Exception {
        return producing(topic).batchingMaxMessages(1000).batchingMaxPublishDelay(1, TimeUnit.HOURS).create();
    }

    /** A subscription called `s` from the first message on, unless told otherwise. */
    ConsumerBuilder<String> consuming(String... topics) {
        return client.newConsumer(Schema.STRING).topic(topics).subscriptionName("s")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest);
    }

    Consumer<String> consumer(String topic, SubscriptionType type) throws Exception {
        return consuming(topic).subscriptionType(type).subscribe();
    }

    Reader<String> reader(String topic, MessageId start) throws Exception {
        return client.newReader(Schema.STRING).topic(topic).startMessageId(start).create();
    }

    /** How many messages subscription `s` has left. */
    long backlog(String topic) throws Exception {
        return admin.topics().getStats(topic).getSubscriptions().get("s").getMsgBacklog();
    }

    /** What reader and broker know of a topic: whether it ends too early for the one, or is not sent to the other. */
    String scene(String topic, Reader<String> reader) throws Exception {
        ManagedLedgerInternalStats stats = admin.topics().getInternalStats(topic);
        StringBuilder scene = new StringBuilder("\nreader connected: " + reader.isConnected());
        scene.append("\nlast message, as readers are told: ").append(reader.getLastMessageIds());
        scene.append("\nlast entry: ").append(stats.lastConfirmedEntry).append(", log: ").append(stats.state);
        stats.ledgers.forEach(each ->
                scene.append("\nledger ").append(each.ledgerId).append(": ").append(each.entries).append(" entries"));
        stats.cursors.forEach((name, each) -> scene.append("\ncursor ").append(name)
                .append(": acknowledged up to ").append(each.markDeletePosition)
                .append(", reads from ").append(each.readPosition));
        return scene.toString();
    }

    // Many messages at once

    /** Sends `<prefix>0` and so on, flushes, and returns their ids. */
    static List<MessageId> send(Producer<String> producer, String prefix, int count) throws Exception {
        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            sent.add(producer.sendAsync(prefix + number));
        }
        producer.flush();
        List<MessageId> ids = new ArrayList<>();
        for (CompletableFuture<MessageId> future : sent) {
            ids.add(future.get(PATIENCE_S, TimeUnit.SECONDS));
        }
        return ids;
    }

    /** The next message, which must come. */
    static Message<String> receive(Consumer<String> consumer) throws Exception {
        Message<String> message = consumer.receive(PATIENCE_S, TimeUnit.SECONDS);
        Expect.that(message != null, "no message within " + PATIENCE_S + " s");
        return message;
    }

    /** The next messages, not acknowledged. */
    static List<Message<String>> receive(Consumer<String> consumer, int count) throws Exception {
        List<Message<String>> messages = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            Message<String> message = consumer.receive(PATIENCE_S, TimeUnit.SECONDS);
            Expect.that(message != null, "after " + number + " messages came none within " + PATIENCE_S + " s");
            messages.add(message);
        }
        return messages;
    }

    static List<Message<String>> read(Reader<String> reader) throws Exception {
        List<Message<String>> messages = new ArrayList<>();
        read(reader, messages);
        return messages;
    }

    /** Adds what there is to `messages`, also where it fails before the end. */
    static void read(Reader<String> reader, List<Message<String>> messages) throws Exception {
        while (reader.hasMessageAvailable()) {
            Message<String> message = reader.readNext(PATIENCE_S, TimeUnit.SECONDS);
            Expect.that(message != null, "after " + messages.size() + " messages one was said to be available, none came");
            messages.add(message);
        }
    }

    static void expectSilence(Consumer<String> consumer) throws Exception {
        expectSilence(consumer, SILENCE_MS);
    }

    static void expectSilence(Consumer<String> consumer, int silenceMs) throws Exception {
        Message<String> message = consumer.receive(silenceMs, TimeUnit.MILLISECONDS);
        Expect.that(message == null, "expected no message, found " + (message == null ? "" : message.getValue()));
    }

    static List<String> texts(List<Message<String>> messages) {
        return messages.stream().map(Message::getValue).toList();
    }

    /** `<prefix><first>` to `<prefix><last>`. */
    static List<String> numbered(String prefix, int first, int last) {
        return IntStream.rangeClosed(first, last).mapToObj(number -> prefix + number).toList();
    }
}
