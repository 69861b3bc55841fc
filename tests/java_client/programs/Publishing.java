import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SizeUnit;
import org.apache.pulsar.client.api.SubscriptionType;

/** What a producer sends is what a consumer gets, in every form it may be sent in. */
final class Publishing {
    private static final int CHUNKED_BYTES = 12 << 20;

    private final Cluster cluster;

    Publishing(Cluster cluster) {
        this.cluster = cluster;
    }

    @Scenario
    void everyCompressionIsRead() throws Exception {
        for (CompressionType compression : CompressionType.values()) {
            String topic = Cluster.newTopic();
            String text = "compressible ".repeat(1000);
            try (Consumer<String> consumer = cluster.consumer(topic, SubscriptionType.Exclusive);
                 Producer<String> producer = cluster.producing(topic).compressionType(compression).create()) {
                Cluster.send(producer, text, 20);
                List<String> found = Cluster.texts(Cluster.receive(consumer, 20));
                Expect.that(Cluster.numbered(text, 0, 19).equals(found), "wrong texts by " + compression);
            }
        }
    }

    @Scenario
    void aLargeMessageInChunksIsWhole() throws Exception {
        String topic = Cluster.newTopic();
        byte[] sent = new byte[CHUNKED_BYTES];
        new Random(1).nextBytes(sent);
        try (Consumer<byte[]> consumer = cluster.client.newConsumer().topic(topic).subscriptionName("s")
                     .startMessageIdInclusive().subscribe();
             Producer<byte[]> producer = cluster.client.newProducer().topic(topic)
                     .enableBatching(false).enableChunking(true).create()) {
            MessageId id = producer.send(sent);
            Message<byte[]> message = consumer.receive(Cluster.PATIENCE_S, TimeUnit.SECONDS);
            Expect.that(message != null && Arrays.equals(sent, message.getData()), "what came is not what was sent");
            Expect.equal(id, message.getMessageId(), "the message's id");
            consumer.acknowledge(message);
            consumer.seek(id); // that is, to its first chunk
            Expect.that(consumer.receive(Cluster.PATIENCE_S, TimeUnit.SECONDS) != null, "it did not come a second time");
        }
    }

    @Scenario
    void aTooLargeMessageIsRefusedAndOthersGoOn() throws Exception {
        String topic = Cluster.newTopic();
        try (Producer<byte[]> producer = cluster.client.newProducer().topic(topic).enableBatching(false).create()) {
            Expect.refused(PulsarClientException.InvalidMessageException.class, () -> producer.send(new byte[6 << 20]));
            producer.send(new byte[1]);
        }
    }

    @Scenario
    void allThatAMessageCarriesArrives() throws Exception {
        String topic = Cluster.newTopic();
        try (Consumer<String> consumer = cluster.consumer(topic, SubscriptionType.Exclusive);
             Producer<String> producer = cluster.producing(topic).producerName("sender").create()) {
            MessageId id = producer.newMessage().key("k").orderingKey(new byte[] {1, 2}).eventTime(4711)
                    .property("a", "1").property("b", "").sequenceId(42).value("v").send();
            Message<String> message = Cluster.receive(consumer);
            Expect.equal("v", message.getValue(), "value");
            Expect.equal("k", message.getKey(), "key");
            Expect.that(Arrays.equals(new byte[] {1, 2}, message.getOrderingKey()), "ordering key");
            Expect.equal(4711L, message.getEventTime(), "event time");
            Expect.equal(Map.of("a", "1", "b", ""), message.getProperties(), "properties");
            Expect.equal(42L, message.getSequenceId(), "sequence id");
            Expect.equal("sender", message.getProducerName(), "producer");
            Expect.equal(topic, message.getTopicName(), "topic");
            Expect.equal(id, message.getMessageId(), "id");
        }
    }

    @Scenario
    void noValueIsNotAnEmptyOne() throws Exception {
        String topic = Cluster.newTopic();
        try (Consumer<String> consumer = cluster.consumer(topic, SubscriptionType.Exclusive);
             Producer<String> producer = cluster.producer(topic);
             Producer<String> batching = cluster.batchProducer(topic)) {
            producer.newMessage().value(null).send();
            producer.newMessage().value("").send();
            batching.newMessage().value(null).sendAsync();
            batching.newMessage().value("").sendAsync();
            batching.flush();
            Expect.equal(Arrays.asList(null, "", null, ""),
                    Cluster.receive(consumer, 4).stream().map(Message::getValue).toList(), "values");
        }
    }

    @Scenario
    void theBrokersTimeAndIndexAreTold() throws Exception {
        String topic = Cluster.newTopic();
        try (Reader<String> reader = cluster.reader(topic, MessageId.earliest);
             Producer<String> producer = cluster.producer(topic);
             Producer<String> batching = cluster.batchProducer(topic)) {
            long before = System.currentTimeMillis();
            Cluster.send(producer, "alone", 2);
            Cluster.send(batching, "batched", 7);
            Cluster.send(producer, "alone", 1);
            List<Message<String>> messages = Cluster.read(reader);
            Expect.equal(List.of(0L, 1L, 2L, 3L, 4L, 5L, 6L, 7L, 8L, 9L),
                    messages.stream().map(message -> message.getIndex().orElse(-1L)).toList(), "indexes");
            for (Message<String> message : messages) {
                long time = message.getBrokerPublishTime().orElseThrow();
                Expect.that(before <= time && time <= System.currentTimeMillis(), "the broker's time: " + time);
            }
        }
    }

    @Scenario
    void anEndedTopicSaysSo() throws Exception {
        String topic = Cluster.newTopic();
        try (Consumer<String> consumer = cluster.consumer(topic, SubscriptionType.Exclusive);
             Producer<String> producer = cluster.producer(topic)) {
            MessageId last = Cluster.send(producer, "m", 3).get(2);
            Expect.equal(last, cluster.admin.topics().terminateTopic(topic), "the last message's id");
            Expect.refused(PulsarClientException.TopicTerminatedException.class, () -> producer.send("more"));
            Expect.refused(PulsarClientException.TopicTerminatedException.class, () -> cluster.producer(topic));
            Expect.that(!consumer.hasReachedEndOfTopic(), "it is at the end before it has read");
            Expect.equal(Cluster.numbered("m", 0, 2), Cluster.texts(Cluster.receive(consumer, 3)), "messages");
            consumer.acknowledgeCumulative(last);
            Expect.eventually(true, consumer::hasReachedEndOfTopic, "it has reached the end of the topic");
        }
    }

    @Scenario
    void whatIsSentAgainIsStoredOnce() throws Exception {
        String namespace = "public/" + Cluster.newName("deduplicated");
        cluster.admin.namespaces().createNamespace(namespace);
        cluster.admin.namespaces().setDeduplicationStatus(namespace, true);
        String topic = namespace + "/topic";
        ProducerBuilder<String> named = cluster.producing(topic).enableBatching(false).producerName("p");
        try (Producer<String> producer = named.clone().initialSequenceId(9).create()) {
            Expect.equal(9L, producer.getLastSequenceId(), "the first sequence id, as told");
            producer.send("ten");
            producer.newMessage().sequenceId(12).value("twelve").send();
            producer.newMessage().sequenceId(11).value("eleven, too late").send();
            producer.newMessage().sequenceId(12).value("twelve again").send();
            Expect.equal(12L, producer.getLastSequenceId(), "the last sequence id");
        }
        cluster.admin.topics().unload(topic);
        try (Producer<String> producer = named.create();
             Reader<String> reader = cluster.reader(topic, MessageId.earliest)) {
            Expect.equal(12L, producer.getLastSequenceId(), "the last sequence id, as the broker knows it");
            producer.send("thirteen");
            Expect.equal(List.of("ten", "twelve", "thirteen"), Cluster.texts(Cluster.read(reader)), "what was stored");
        }
    }

    @Scenario
    void aClientOfLittleMemoryWaitsForIt() throws Exception {
        String topic = Cluster.newTopic();
        try (PulsarClient small = PulsarClient.builder().serviceUrl(cluster.serviceUrl())
                .memoryLimit(64, SizeUnit.KILO_BYTES).build();
             Consumer<String> consumer = small.newConsumer(Schema.STRING).topic(topic).subscriptionName("s").subscribe();
             Producer<String> waiting = small.newProducer(Schema.STRING).topic(topic).blockIfQueueFull(true).create();
             Producer<String> refusing = small.newProducer(Schema.STRING).topic(topic).create()) {
            String text = "x".repeat(10_000);
            Cluster.send(waiting, text, 100);
            for (int number = 0; number < 100; number++) {
                Expect.equal(text + number, Cluster.receive(consumer).getValue(), "message");
            }
            Expect.refused(PulsarClientException.MemoryBufferIsFullError.class, () -> {
                CompletableFuture<?>[] sent = new CompletableFuture<?>[20];
                Arrays.setAll(sent, number -> refusing.sendAsync(text));
                return CompletableFuture.allOf(sent).get(Cluster.PATIENCE_S, TimeUnit.SECONDS);
            });
        }
    }
}
