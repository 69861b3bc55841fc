import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.common.policies.data.AutoTopicCreationOverride;

/** Partitioned topics, lists of topics, and patterns. */
final class ManyTopics {
    private static final int SEEN_WITHIN_MS = 1000;

    private final Cluster cluster;

    ManyTopics(Cluster cluster) {
        this.cluster = cluster;
    }

    @Scenario
    void aPatternSeesNewTopicsAtOnce() throws Exception {
        String prefix = Cluster.newTopic();
        try (Producer<String> old = cluster.producer(prefix + "-old");
             Producer<String> other = cluster.producer(Cluster.newTopic());
             Consumer<String> consumer = cluster.client.newConsumer(Schema.STRING)
                     .topicsPattern(Pattern.compile(prefix + "-.*")).subscriptionName("s")
                     .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                     .patternAutoDiscoveryPeriod(1, TimeUnit.HOURS).subscribe()) {
            old.send("old");
            other.send("other");
            Expect.equal("old", Cluster.receive(consumer).getValue(), "of a topic that was there");
            Set<String> found = new HashSet<>();
            for (int number = 0; number < 3; number++) {
                try (Producer<String> producer = cluster.producer(prefix + "-new" + number)) {
                    long sentMs = System.currentTimeMillis();
                    producer.send("new" + number);
                    found.add(Cluster.receive(consumer).getValue());
                    long afterMs = System.currentTimeMillis() - sentMs;
                    Expect.that(afterMs < SEEN_WITHIN_MS, "a new topic was seen after " + afterMs + " ms");
                }
            }
            Expect.equal(Set.of("new0", "new1", "new2"), found, "of topics that were made then");
            Cluster.expectSilence(consumer);
        }
    }

    @Scenario
    void clientsTakeUpNewPartitions() throws Exception {
        String topic = Cluster.newTopic();
        cluster.admin.topics().createPartitionedTopic(topic, 2);
        try (Consumer<String> consumer = cluster.consuming(topic).autoUpdatePartitionsInterval(1, TimeUnit.SECONDS).subscribe();
             Producer<String> producer = cluster.producing(topic).enableBatching(false)
                     .autoUpdatePartitionsInterval(1, TimeUnit.SECONDS).create()) {
            Expect.equal(2, producer.getNumOfPartitions(), "partitions");
            cluster.admin.topics().updatePartitionedTopic(topic, 4);
            Expect.eventually(4, producer::getNumOfPartitions, "partitions then");
            Cluster.send(producer, "m", 40);
            Set<String> topics = new HashSet<>();
            Set<String> texts = new HashSet<>();
            for (Message<String> message : Cluster.receive(consumer, 40)) {
                topics.add(message.getTopicName());
                texts.add(message.getValue());
            }
            Expect.equal(4, topics.size(), "partitions that messages came from");
            Expect.equal(Set.copyOf(Cluster.numbered("m", 0, 39)), texts, "messages");
            Expect.equal(List.of(0, 1, 2, 3), cluster.client.getPartitionsForTopic(topic, false).get().stream()
                    .map(name -> Integer.valueOf(name.substring(name.length() - 1))).toList(), "partitions by name");
        }
    }

    @Scenario
    void aKeyHasOnePartition() throws Exception {
        String topic = Cluster.newTopic();
        cluster.admin.topics().createPartitionedTopic(topic, 4);
        try (Consumer<String> consumer = cluster.consumer(topic, SubscriptionType.Exclusive);
             Producer<String> producer = cluster.producing(topic).create()) {
            for (int number = 0; number < 10; number++) {
                producer.newMessage().key("k").value("m" + number).send();
            }
            List<Message<String>> messages = Cluster.receive(consumer, 10);
            Expect.equal(Cluster.numbered("m", 0, 9), Cluster.texts(messages), "messages in order");
            Expect.equal(1L, messages.stream().map(Message::getTopicName).distinct().count(), "partitions");
        }
    }

    @Scenario
    void oneConsumerHasSeveralTopics() throws Exception {
        String one = Cluster.newTopic();
        String other = Cluster.newTopic();
        cluster.admin.topics().createPartitionedTopic(other, 2);
        try (Consumer<String> consumer = cluster.consuming(one, other).subscriptionType(SubscriptionType.Shared).subscribe();
             Producer<String> toOne = cluster.producer(one);
             Producer<String> toOther = cluster.producer(other)) {
            Cluster.send(toOne, "a", 5);
            Cluster.send(toOther, "b", 5);
            Set<String> texts = new HashSet<>();
            for (Message<String> message : Cluster.receive(consumer, 10)) {
                texts.add(message.getValue());
                consumer.acknowledge(message);
            }
            Set<String> expected = new HashSet<>(Cluster.numbered("a", 0, 4));
            expected.addAll(Cluster.numbered("b", 0, 4));
            Expect.equal(expected, texts, "messages");
            Expect.eventually(0L, () -> cluster.backlog(one), "backlog");
            consumer.unsubscribe();
            Expect.equal(List.of(), cluster.admin.topics().getSubscriptions(one), "subscriptions then");
        }
    }

    @Scenario
    void aTopicThatIsNotThereIsNotMadeAgainstTheRules() throws Exception {
        String namespace = "public/" + Cluster.newName("strict");
        cluster.admin.namespaces().createNamespace(namespace);
        cluster.admin.namespaces().setAutoTopicCreation(namespace,
                AutoTopicCreationOverride.builder().allowAutoTopicCreation(false).build());
        Expect.refused(PulsarClientException.TopicDoesNotExistException.class, () -> cluster.producer(namespace + "/topic"));
        Expect.refused(PulsarClientException.TopicDoesNotExistException.class,
                () -> cluster.consumer(namespace + "/topic", SubscriptionType.Shared));
    }
}
