import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.KeySharedPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Range;
import org.apache.pulsar.client.api.SubscriptionType;

/** Key_Shared subscriptions: the order of each key, and which consumer has it. */
final class KeyShared {
    private static final int KEYS = 50;

    private final Cluster cluster;

    KeyShared(Cluster cluster) {
        this.cluster = cluster;
    }

    @Scenario
    void everyKeyKeepsItsOrderWhileConsumersComeAndGo() throws Exception {
        String topic = Cluster.newTopic();
        int rounds = 60;
        Work work = new Work();
        List<Consumer<String>> consumers = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            consumers.add(subscribe(topic, work));
        }
        try (Producer<String> producer = cluster.producing(topic).enableBatching(false).create()) {
            for (int round = 0; round < rounds; round++) {
                if (round == rounds / 3) {
                    consumers.add(subscribe(topic, work));
                }
                if (round == 2 * rounds / 3) {
                    work.leave(consumers.remove(0));
                }
                sendRound(producer, round);
                producer.flush();
            }
        }
        work.expect(rounds);
        for (Consumer<String> consumer : consumers) {
            consumer.close();
        }
    }

    @Scenario
    void batchesOfOneKeyEachKeepTheOrder() throws Exception {
        String topic = Cluster.newTopic();
        int rounds = 10;
        Work work = new Work();
        try (Consumer<String> one = subscribe(topic, work);
             Consumer<String> other = subscribe(topic, work);
             Producer<String> producer = cluster.producing(topic).batcherBuilder(BatcherBuilder.KEY_BASED)
                     .batchingMaxPublishDelay(1, TimeUnit.HOURS).create()) {
            for (int round = 0; round < rounds; round++) {
                sendRound(producer, round);
                if (round % 5 == 4) {
                    producer.flush();
                }
            }
            work.expect(rounds);
            Expect.that(work.batched.get() > 0, "no message came in a batch");
            Expect.that(one.isConnected() && other.isConnected(), "both stay");
        }
    }

    @Scenario
    void consumersOfStickyRangesHaveKeysOfTheirOwn() throws Exception {
        String topic = Cluster.newTopic();
        try (Consumer<String> low = sticky(topic, Range.of(0, 32767));
             Consumer<String> high = sticky(topic, Range.of(32768, 65535));
             Producer<String> producer = cluster.producing(topic).enableBatching(false).create()) {
            sendRound(producer, 0);
            List<Set<String>> keys = keysOf(low, high);
            sendRound(producer, 1);
            Expect.equal(keys, keysOf(low, high), "the keys of the low and the high half the second time");
            Expect.equal(KEYS, keys.get(0).size() + keys.get(1).size(), "keys of both");
            Expect.that(!keys.get(0).isEmpty() && !keys.get(1).isEmpty(), "each half has keys");
        }
    }

    @Scenario
    void overlappingStickyRangesAreRefused() throws Exception {
        String topic = Cluster.newTopic();
        try (Consumer<String> first = sticky(topic, Range.of(0, 100))) {
            Expect.refused(PulsarClientException.ConsumerAssignException.class, () -> sticky(topic, Range.of(100, 200)));
            sticky(topic, Range.of(101, 200)).close();
            Expect.that(first.isConnected(), "the first one stays");
        }
    }

    @Scenario
    void theOrderingKeyComesBeforeTheKey() throws Exception {
        String topic = Cluster.newTopic();
        try (Consumer<String> low = sticky(topic, Range.of(0, 32767));
             Consumer<String> high = sticky(topic, Range.of(32768, 65535));
             Producer<String> producer = cluster.producing(topic).enableBatching(false).create()) {
            for (int key = 0; key < KEYS; key++) {
                producer.newMessage().key("key-" + key).orderingKey(new byte[] {7}).value("m").send();
            }
            List<Set<String>> keys = keysOf(low, high);
            Expect.equal(Set.of(0, KEYS), Set.of(keys.get(0).size(), keys.get(1).size()), "how many each consumer has of one ordering key");
        }
    }

    private Consumer<String> subscribe(String topic, Work work) throws Exception {
        return cluster.consuming(topic).subscriptionType(SubscriptionType.Key_Shared).receiverQueueSize(20)
                .messageListener(work::take).subscribe();
    }

    private Consumer<String> sticky(String topic, Range range) throws Exception {
        return cluster.consuming(topic).subscriptionType(SubscriptionType.Key_Shared)
                .keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(range)).subscribe();
    }

    private static void sendRound(Producer<String> producer, int round) throws Exception {
        for (int key = 0; key < KEYS; key++) {
            producer.newMessage().key("key-" + key).value(String.valueOf(round)).sendAsync();
        }
    }

    /** The keys of as many messages as there are keys, by the consumer that got them; all are acknowledged. */
    private static List<Set<String>> keysOf(Consumer<String> low, Consumer<String> high) throws Exception {
        List<Set<String>> keys = List.of(new HashSet<>(), new HashSet<>());
        long deadlineMs = System.currentTimeMillis() + 1000L * Cluster.PATIENCE_S;
        int count = 0;
        while (count < KEYS) {
            Expect.that(System.currentTimeMillis() < deadlineMs, "only " + count + " of " + KEYS + " messages came");
            for (int index = 0; index < keys.size(); index++) {
                Consumer<String> consumer = index == 0 ? low : high;
                Message<String> message = consumer.receive(20, TimeUnit.MILLISECONDS);
                if (message != null) {
                    keys.get(index).add(message.getKey());
                    consumer.acknowledge(message);
                    count++;
                }
            }
        }
        Cluster.expectSilence(low);
        Cluster.expectSilence(high);
        return keys;
    }

    /** What all consumers of a topic did: each message is a key's number of its round. */
    private static final class Work {
        private final Map<String, Consumer<?>> working = new ConcurrentHashMap<>();
        private final Set<Consumer<?>> gone = ConcurrentHashMap.newKeySet();
        private final Map<String, List<String>> done = new ConcurrentHashMap<>();
        private final List<String> wrong = Collections.synchronizedList(new ArrayList<>());
        private final AtomicInteger batched = new AtomicInteger();

        void take(Consumer<String> consumer, Message<String> message) {
            synchronized (consumer) {
                if (!gone.contains(consumer)) {
                    finish(consumer, message);
                }
            }
        }

        /** It finishes what it is at and goes; others get what it had not begun. */
        void leave(Consumer<String> consumer) throws PulsarClientException {
            synchronized (consumer) {
                gone.add(consumer);
            }
            consumer.close();
        }

        private void finish(Consumer<String> consumer, Message<String> message) {
            String key = message.getKey();
            if (working.putIfAbsent(key, consumer) != null) {
                wrong.add(key + " is at two consumers");
            }
            done.computeIfAbsent(key, each -> Collections.synchronizedList(new ArrayList<>())).add(message.getValue());
            batched.addAndGet(((MessageIdAdv) message.getMessageId()).getBatchSize() > 1 ? 1 : 0);
            try {
                consumer.acknowledge(message);
            } catch (PulsarClientException error) {
                wrong.add(error.toString());
            }
            working.remove(key);
        }

        void expect(int rounds) throws Exception {
            Expect.eventually(rounds * KEYS, () -> done.values().stream().mapToInt(List::size).sum(), "messages received");
            Expect.equal(List.of(), wrong, "what went wrong");
            List<String> inOrder = Cluster.numbered("", 0, rounds - 1);
            done.forEach((key, values) -> Expect.equal(inOrder, values, "what came of " + key));
        }
    }
}
