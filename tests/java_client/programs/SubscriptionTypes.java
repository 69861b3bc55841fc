import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerEventListener;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.common.policies.data.NonPersistentSubscriptionStats;

/** Exclusive, Failover and Shared subscriptions: who is served; Key_Shared ones are a theme of their own. */
final class SubscriptionTypes {
    private final Cluster cluster;

    SubscriptionTypes(Cluster cluster) {
        this.cluster = cluster;
    }

    @Scenario
    void aSecondExclusiveConsumerIsBusy() throws Exception {
        String topic = Cluster.newTopic();
        try (Consumer<String> first = cluster.consumer(topic, SubscriptionType.Exclusive)) {
            Expect.refused(PulsarClientException.ConsumerBusyException.class,
                    () -> cluster.consumer(topic, SubscriptionType.Exclusive));
            Expect.refused(PulsarClientException.ConsumerBusyException.class,
                    () -> cluster.consumer(topic, SubscriptionType.Shared));
        }
        cluster.consumer(topic, SubscriptionType.Exclusive).close();
    }

    @Scenario
    void failoverConsumersAreToldWhoIsActive() throws Exception {
        // Of a partition, the consumer is active whose name is the partition's by order; of another topic, any.
        String topic = Cluster.newTopic();
        cluster.admin.topics().createPartitionedTopic(topic, 1);
        Activity activity = new Activity();
        Consumer<String> a = failover(topic, "a", 0, activity);
        Expect.eventually(List.of("a active"), activity::seen, "with one consumer");
        Consumer<String> b = failover(topic, "b", 0, activity);
        Expect.eventually(List.of("a active", "b inactive"), activity::seen, "with two");
        try (Producer<String> producer = cluster.producer(topic)) {
            producer.send("one");
            Expect.equal("one", Cluster.receive(a).getValue(), "what the active one receives");
            Cluster.expectSilence(b);
            a.close();
            Expect.eventually(List.of("a active", "b inactive", "b active"), activity::seen, "when the first left");
            Expect.equal("one", Cluster.receive(b).getValue(), "what the next one receives, unacknowledged before");
        }
        Expect.equal("b", activeConsumer(topic + "-partition-0"), "the active consumer by the stats");
        b.close();
    }

    @Scenario
    void aFailoverConsumerOfHigherPriorityTakesOver() throws Exception {
        String topic = Cluster.newTopic();
        Activity activity = new Activity();
        try (Consumer<String> low = failover(topic, "a-low", 1, activity);
             Consumer<String> high = failover(topic, "z-high", 0, activity)) {
            Expect.eventually("z-high", () -> activeConsumer(topic), "the active consumer");
            Expect.eventually(true, () -> activity.seen().contains("a-low inactive"), "the other one was told");
            Expect.that(low.isConnected() && high.isConnected(), "both stay");
        }
    }

    @Scenario
    void sharedConsumersTakeTurns() throws Exception {
        String topic = Cluster.newTopic();
        int count = 300;
        List<Set<String>> received = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            Set<String> mine = ConcurrentHashMap.newKeySet();
            received.add(mine);
            cluster.consuming(topic).subscriptionType(SubscriptionType.Shared)
                    .messageListener((consumer, message) -> {
                        mine.add(message.getValue());
                        consumer.acknowledgeAsync(message);
                    }).subscribe();
        }
        try (Producer<String> producer = cluster.producer(topic)) {
            Cluster.send(producer, "m", count);
        }
        Expect.eventually(count, () -> received.stream().mapToInt(Set::size).sum(), "what all three received");
        for (Set<String> mine : received) {
            // A turn is twenty messages at most.
            Expect.that(Math.abs(mine.size() - count / 3) <= 40, "one of three received " + mine.size() + " of " + count);
        }
    }

    @Scenario
    void sharedConsumersMayNotAcknowledgeCumulatively() throws Exception {
        String topic = Cluster.newTopic();
        try (Consumer<String> consumer = cluster.consumer(topic, SubscriptionType.Shared);
             Producer<String> producer = cluster.producer(topic)) {
            producer.send("one");
            Expect.refused(PulsarClientException.InvalidConfigurationException.class, () -> {
                consumer.acknowledgeCumulative(Cluster.receive(consumer));
                return "acknowledged";
            });
        }
    }

    @Scenario
    void aPausedListenerHearsNothingUntilItResumes() throws Exception {
        String topic = Cluster.newTopic();
        List<String> heard = Collections.synchronizedList(new ArrayList<>());
        try (Producer<String> producer = cluster.producer(topic);
             Consumer<String> consumer = cluster.consuming(topic).receiverQueueSize(10).messageListener((from, message) -> {
                 heard.add(message.getValue());
                 from.acknowledgeAsync(message);
             }).subscribe()) {
            producer.send("before");
            Expect.eventually(List.of("before"), () -> List.copyOf(heard), "what was heard before the pause");
            consumer.pause();
            Cluster.send(producer, "m", 50);
            Thread.sleep(Cluster.SILENCE_MS);
            // What it had asked for before may still come: a queue of ten.
            Expect.that(heard.size() <= 11, "heard in the pause: " + heard);
            consumer.resume();
            List<String> all = new ArrayList<>(List.of("before"));
            all.addAll(Cluster.numbered("m", 0, 49));
            Expect.eventually(all, () -> List.copyOf(heard), "what was heard in the end");
        }
    }

    @Scenario
    void anUnsubscribedSubscriptionIsGone() throws Exception {
        String topic = Cluster.newTopic();
        Consumer<String> consumer = cluster.consumer(topic, SubscriptionType.Shared);
        Expect.equal(List.of("s"), cluster.admin.topics().getSubscriptions(topic), "subscriptions before");
        consumer.unsubscribe();
        Expect.equal(List.of(), cluster.admin.topics().getSubscriptions(topic), "subscriptions after");
    }

    @Scenario
    void unsubscribingBesideOthersIsRefused() throws Exception {
        String topic = Cluster.newTopic();
        try (Consumer<String> one = cluster.consumer(topic, SubscriptionType.Shared);
             Consumer<String> other = cluster.consumer(topic, SubscriptionType.Shared)) {
            Expect.refused(PulsarClientException.class, () -> {
                one.unsubscribe();
                return "unsubscribed";
            });
            Expect.that(other.isConnected(), "the other one stays");
        }
    }

    @Scenario
    void nonPersistentMessagesThatNobodyHasRoomForAreDropped() throws Exception {
        String topic = Cluster.newTopic().replace("persistent:", "non-persistent:");
        CountDownLatch ended = new CountDownLatch(1);
        List<Consumer<String>> slow = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            slow.add(cluster.consuming(topic).subscriptionName("slow-" + number).receiverQueueSize(1)
                    .messageListener((consumer, message) -> await(ended)).subscribe());
        }
        try (Producer<String> producer = cluster.producer(topic)) {
            Cluster.send(producer, "m", 500);
            Expect.eventually(true, () -> dropRate(topic) > 0, "msgDropRate is above 0");
        } finally {
            ended.countDown();
        }
        for (Consumer<String> consumer : slow) {
            consumer.close();
        }
    }

    private Consumer<String> failover(String topic, String name, int priority, Activity activity) throws Exception {
        return cluster.consuming(topic).subscriptionType(SubscriptionType.Failover).consumerName(name)
                .priorityLevel(priority).consumerEventListener(activity).subscribe();
    }

    private String activeConsumer(String topic) throws Exception {
        return cluster.admin.topics().getStats(topic).getSubscriptions().get("s").getActiveConsumerName();
    }

    @SuppressWarnings("deprecation") // nothing else decodes this figure
    private double dropRate(String topic) throws Exception {
        return cluster.admin.nonPersistentTopics().getStats(topic).getSubscriptions().values().stream()
                .mapToDouble(NonPersistentSubscriptionStats::getMsgDropRate).sum();
    }

    private static void await(CountDownLatch latch) {
        try {
            latch.await(Cluster.PATIENCE_S, TimeUnit.SECONDS);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Who was told what, in order. */
    private static final class Activity implements ConsumerEventListener {
        private static final long serialVersionUID = 1;
        private final List<String> seen = Collections.synchronizedList(new ArrayList<>());

        @Override
        public void becameActive(Consumer<?> consumer, int partition) {
            seen.add(consumer.getConsumerName() + " active");
        }

        @Override
        public void becameInactive(Consumer<?> consumer, int partition) {
            seen.add(consumer.getConsumerName() + " inactive");
        }

        List<String> seen() {
            return List.copyOf(seen);
        }
    }
}
