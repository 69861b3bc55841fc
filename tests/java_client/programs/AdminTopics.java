import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.LongRunningProcessStatus;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.admin.Topics;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.common.policies.data.PersistentTopicInternalStats;
import org.apache.pulsar.common.policies.data.SubscriptionStats;
import org.apache.pulsar.common.policies.data.TopicStats;

/** What `pulsar-admin topics` asks, and how its client reads our answers. */
final class AdminTopics {
    private final Cluster cluster;
    private final Topics topics;

    AdminTopics(Cluster cluster) {
        this.cluster = cluster;
        topics = cluster.admin.topics();
    }

    @Scenario
    void topicsAreMadeListedAndDeleted() throws Exception {
        String plain = Cluster.newTopic();
        String partitioned = Cluster.newTopic();
        topics.createNonPartitionedTopic(plain);
        topics.createPartitionedTopic(partitioned, 2);
        Expect.equal(2, topics.getPartitionedTopicMetadata(partitioned).partitions, "partitions");
        Expect.equal(0, topics.getPartitionedTopicMetadata(plain).partitions, "partitions of a plain topic");
        Expect.that(topics.getList(Cluster.NAMESPACE).containsAll(List.of(plain, partitioned + "-partition-1")), "listed");
        Expect.that(topics.getPartitionedTopicList(Cluster.NAMESPACE).contains(partitioned), "listed as partitioned");
        Expect.refused(PulsarAdminException.ConflictException.class, () -> {
            topics.createNonPartitionedTopic(plain);
            return "made twice";
        });
        topics.delete(plain);
        topics.deletePartitionedTopic(partitioned);
        Expect.that(!topics.getList(Cluster.NAMESPACE).contains(plain), "listed after it was deleted");
        Expect.refused(PulsarAdminException.NotFoundException.class, () -> topics.getStats(plain));
    }

    @Scenario
    void aTopicInUseIsNotDeletedUnlessForced() throws Exception {
        String topic = Cluster.newTopic();
        try (Consumer<String> consumer = cluster.consumer(topic, SubscriptionType.Shared)) {
            Expect.refused(PulsarAdminException.PreconditionFailedException.class, () -> {
                topics.delete(topic);
                return "deleted";
            });
            Expect.that(consumer.isConnected(), "it stays connected");
        }
        topics.delete(topic, true);
        Expect.that(!topics.getList(Cluster.NAMESPACE).contains(topic), "listed after it was deleted");
    }

    @Scenario
    void statsSayWhoIsThereAndWhatIsLeft() throws Exception {
        String topic = Cluster.newTopic();
        try (Consumer<String> consumer = cluster.consuming(topic).subscriptionType(SubscriptionType.Shared)
                     .consumerName("c").property("role", "test").subscribe();
             Producer<String> producer = cluster.producing(topic).producerName("p").enableBatching(false).create()) {
            Cluster.send(producer, "m", 10);
            consumer.acknowledge(Cluster.receive(consumer, 10).get(0));
            Expect.eventually(9L, () -> cluster.backlog(topic), "backlog");
            TopicStats stats = topics.getStats(topic, true, true, true);
            Expect.equal("p", stats.getPublishers().get(0).getProducerName(), "producer");
            Expect.that(stats.getStorageSize() > 0 && stats.getMsgInCounter() == 10, "stored " + stats.getStorageSize()
                    + " bytes of " + stats.getMsgInCounter() + " messages");
            SubscriptionStats subscription = stats.getSubscriptions().get("s");
            Expect.equal("Shared", subscription.getType(), "type");
            Expect.equal("c", subscription.getConsumers().get(0).getConsumerName(), "consumer");
            Expect.equal(Map.of("role", "test"), subscription.getConsumers().get(0).getMetadata(), "its properties");
            Expect.equal(9, subscription.getConsumers().get(0).getUnackedMessages(), "unacknowledged");
            Expect.equal(9L, subscription.getMsgBacklog(), "backlog");
        }
    }

    @Scenario
    void partitionedStatsAddUp() throws Exception {
        String topic = Cluster.newTopic();
        topics.createPartitionedTopic(topic, 3);
        try (Consumer<String> consumer = cluster.consumer(topic, SubscriptionType.Shared);
             Producer<String> producer = cluster.producer(topic)) {
            Cluster.send(producer, "m", 30);
            Cluster.receive(consumer, 30);
            var stats = topics.getPartitionedStats(topic, true);
            Expect.equal(3, stats.getPartitions().size(), "partitions");
            Expect.equal(30L, stats.getMsgInCounter(), "messages of all");
            Expect.equal(30L, stats.getSubscriptions().get("s").getMsgBacklog(), "backlog of all");
        }
    }

    @Scenario
    void internalStatsShowLedgersAndCursors() throws Exception {
        String topic = Cluster.newTopic();
        try (Consumer<String> consumer = cluster.consumer(topic, SubscriptionType.Shared);
             Producer<String> producer = cluster.producer(topic)) {
            List<MessageId> ids = Cluster.send(producer, "m", 3);
            Cluster.receive(consumer, 3);
            PersistentTopicInternalStats stats = topics.getInternalStats(topic);
            Expect.equal(3L, stats.numberOfEntries, "entries");
            Expect.equal(1, stats.ledgers.size(), "ledgers");
            Expect.equal(Set.of("s"), stats.cursors.keySet(), "cursors");
            Expect.that(ids.get(2).toString().startsWith(stats.lastConfirmedEntry), "last entry " + stats.lastConfirmedEntry);
            Expect.equal(ids.get(2), topics.getLastMessageId(topic), "last message");
        }
    }

    @Scenario
    void subscriptionsAreMadeMovedAndDeleted() throws Exception {
        String topic = Cluster.newTopic();
        try (Producer<String> producer = cluster.producer(topic)) {
            List<MessageId> ids = Cluster.send(producer, "m", 10);
            topics.createSubscription(topic, "s", MessageId.earliest);
            topics.createSubscription(topic, "end", MessageId.latest);
            Expect.equal(Set.of("s", "end"), Set.copyOf(topics.getSubscriptions(topic)), "subscriptions");
            Expect.equal(10L, cluster.backlog(topic), "from the start");
            topics.skipMessages(topic, "s", 3);
            Expect.equal(7L, cluster.backlog(topic), "after three were skipped");
            topics.skipAllMessages(topic, "s");
            Expect.equal(0L, cluster.backlog(topic), "after all were skipped");
            topics.resetCursor(topic, "s", ids.get(5));
            Expect.equal(5L, cluster.backlog(topic), "from the sixth on");
            topics.resetCursor(topic, "s", ids.get(5), true);
            Expect.equal(4L, cluster.backlog(topic), "behind the sixth");
            topics.resetCursor(topic, "s", System.currentTimeMillis() - TimeUnit.HOURS.toMillis(1));
            Expect.equal(10L, cluster.backlog(topic), "from an hour ago");
            Expect.refused(PulsarAdminException.ConflictException.class, () -> {
                topics.createSubscription(topic, "s", MessageId.earliest);
                return "made twice";
            });
            topics.deleteSubscription(topic, "s");
            Expect.equal(List.of("end"), topics.getSubscriptions(topic), "subscriptions then");
        }
    }

    @Scenario
    void messagesAreLookedAtWithoutConsumingThem() throws Exception {
        String topic = Cluster.newTopic();
        try (Producer<String> producer = cluster.producer(topic);
             Producer<String> batching = cluster.batchProducer(topic)) {
            topics.createSubscription(topic, "s", MessageId.earliest);
            producer.newMessage().key("k").property("p", "v").value("m0").send();
            Cluster.send(producer, "n", 2);
            Cluster.send(batching, "b", 3);
            List<Message<byte[]>> peeked = topics.peekMessages(topic, "s", 4);
            Expect.equal(List.of("m0", "n0", "n1", "b0"), peeked.stream().limit(4).map(AdminTopics::text).toList(), "peeked");
            Expect.equal("k", peeked.get(0).getKey(), "key");
            Expect.equal("v", peeked.get(0).getProperty("p"), "property");
            Expect.equal("m0", text(topics.examineMessage(topic, "earliest", 1)), "the first");
            Expect.equal("n1", text(topics.examineMessage(topic, "earliest", 3)), "the third");
            Expect.equal("b0", text(topics.examineMessage(topic, "latest", 1)), "the first of the last batch");
            var id = (MessageIdAdv) peeked.get(1).getMessageId();
            Expect.equal("n0", text(topics.getMessagesById(topic, id.getLedgerId(), id.getEntryId()).get(0)), "by id");
            Expect.equal(4L, cluster.backlog(topic), "entries that are still to be consumed");
        }
    }

    @Scenario
    void aTopicIsEndedCompactedAndUnloaded() throws Exception {
        String topic = Cluster.newTopic();
        MessageId last;
        try (Producer<String> producer = cluster.producer(topic)) {
            producer.newMessage().key("a").value("1").send();
            last = producer.newMessage().key("a").value("2").send();
        }
        Expect.equal(LongRunningProcessStatus.Status.NOT_RUN, topics.compactionStatus(topic).status, "compaction before");
        topics.triggerCompaction(topic);
        Expect.eventually(LongRunningProcessStatus.Status.SUCCESS, () -> topics.compactionStatus(topic).status, "compaction");
        Expect.equal(last, topics.terminateTopic(topic), "the last message's id");
        topics.unload(topic);
        Expect.refused(PulsarClientException.TopicTerminatedException.class, () -> cluster.producer(topic));
    }

    @Scenario
    void messagesExpireWhenAskedTo() throws Exception {
        String topic = Cluster.newTopic();
        try (Producer<String> producer = cluster.producer(topic)) {
            topics.createSubscription(topic, "s", MessageId.earliest);
            List<MessageId> ids = Cluster.send(producer, "m", 10);
            topics.expireMessages(topic, "s", ids.get(3), false);
            Expect.eventually(6L, () -> cluster.backlog(topic), "backlog behind the fourth");
            topics.truncate(topic);
            Expect.eventually(0L, () -> cluster.backlog(topic), "backlog of a truncated topic");
        }
    }

    private static String text(Message<byte[]> message) {
        return new String(message.getData(), StandardCharsets.UTF_8);
    }
}
