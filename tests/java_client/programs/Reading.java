import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.LongRunningProcessStatus;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.TableView;

/** Readers, compacted topics, and tables made of them. */
final class Reading {
    private static final List<String> LEDGERS = List.of("a", "b", "c");
    private static final int LEDGER = 50;
    private static final int BATCH = 5;
    /** A client groups its acknowledgements for a tenth of a second. */
    private static final long REST_MS = 300;

    private final Cluster cluster;

    Reading(Cluster cluster) {
        this.cluster = cluster;
    }

    @Scenario
    void aReaderReadsWhatIsThere() throws Exception {
        String topic = Cluster.newTopic();
        try (Producer<String> producer = cluster.batchProducer(topic)) {
            Cluster.send(producer, "a", 5);
            Cluster.send(producer, "b", 5);
        }
        List<String> all = new ArrayList<>(Cluster.numbered("a", 0, 4));
        all.addAll(Cluster.numbered("b", 0, 4));
        try (Reader<String> reader = cluster.reader(topic, MessageId.earliest)) {
            Expect.equal(all, Cluster.texts(Cluster.read(reader)), "from the start");
            Expect.equal(false, reader.hasMessageAvailable(), "a message is available at the end");
        }
    }

    /** Its acknowledgements go out a few times a second: in the first batch of a ledger they name entry -1 of it. */
    @Scenario
    void aReaderMayRestInTheFirstBatchOfALedger() throws Exception {
        String topic = Cluster.newTopic();
        try (Producer<String> producer = cluster.producing(topic).batchingMaxMessages(BATCH)
                .batchingMaxPublishDelay(1, TimeUnit.HOURS).create()) {
            cluster.consuming(topic).subscribe().close(); // else no subscription would need the first ledgers
            for (String prefix : LEDGERS) {
                Cluster.send(producer, prefix, LEDGER);
                cluster.admin.topics().unload(topic);
            }
        }
        List<String> found = new ArrayList<>();
        try (Reader<String> reader = cluster.client.newReader(Schema.STRING).topic(topic).receiverQueueSize(BATCH)
                .startMessageId(MessageId.earliest).create()) {
            while (reader.hasMessageAvailable()) {
                found.add(reader.readNext(Cluster.PATIENCE_S, TimeUnit.SECONDS).getValue());
                if (found.size() % LEDGER == 1) {
                    Thread.sleep(REST_MS);
                }
            }
        }
        List<String> all = new ArrayList<>();
        LEDGERS.forEach(prefix -> all.addAll(Cluster.numbered(prefix, 0, LEDGER - 1)));
        Expect.equal(all, found, "from the start");
    }

    @Scenario
    void aReaderStartsAtAMessageOrBehindIt() throws Exception {
        String topic = Cluster.newTopic();
        List<MessageId> ids;
        try (Producer<String> producer = cluster.batchProducer(topic)) {
            ids = Cluster.send(producer, "m", 5);
        }
        try (Reader<String> behind = cluster.reader(topic, ids.get(2));
             Reader<String> at = cluster.client.newReader(Schema.STRING).topic(topic).startMessageId(ids.get(2))
                     .startMessageIdInclusive().create();
             Reader<String> last = cluster.client.newReader(Schema.STRING).topic(topic).startMessageId(MessageId.latest)
                     .startMessageIdInclusive().create()) {
            Expect.equal(Cluster.numbered("m", 3, 4), Cluster.texts(Cluster.read(behind)), "behind the third");
            Expect.equal(Cluster.numbered("m", 2, 4), Cluster.texts(Cluster.read(at)), "from the third on");
            Expect.equal(List.of("m4"), Cluster.texts(Cluster.read(last)), "the last one");
        }
    }

    @Scenario
    void aReaderStartsSomeTimeAgo() throws Exception {
        String topic = Cluster.newTopic();
        try (Producer<String> producer = cluster.producer(topic)) {
            Cluster.send(producer, "m", 3);
        }
        try (Reader<String> reader = cluster.client.newReader(Schema.STRING).topic(topic)
                .startMessageFromRollbackDuration(1, TimeUnit.HOURS).create()) {
            Expect.equal(Cluster.numbered("m", 0, 2), Cluster.texts(Cluster.read(reader)), "of the last hour");
        }
    }

    @Scenario
    void aCompactedTopicHasTheLastOfEachKey() throws Exception {
        String topic = Cluster.newTopic();
        try (Producer<String> producer = cluster.producing(topic).create()) {
            sendAll(producer, "a=1", "b=1", "c=1", "a=2", "b=");
            compact(topic);
            sendAll(producer, "d=1");
            Expect.equal(Map.of("c", "1", "a", "2", "d", "1"), readCompacted(topic), "compacted");
            try (Reader<String> reader = cluster.reader(topic, MessageId.earliest)) {
                Expect.equal(6, Cluster.read(reader).size(), "messages that were not compacted");
            }
        }
    }

    @Scenario
    void aConsumerReadsCompacted() throws Exception {
        String topic = Cluster.newTopic();
        try (Producer<String> producer = cluster.producing(topic).create()) {
            cluster.consuming(topic).readCompacted(true).subscribe().close();
            sendAll(producer, "a=1", "b=1", "a=2");
            compact(topic);
            try (Consumer<String> consumer = cluster.consuming(topic).readCompacted(true).subscribe()) {
                List<Message<String>> messages = Cluster.receive(consumer, 2);
                Expect.equal(List.of("b", "a"), messages.stream().map(Message::getKey).toList(), "keys");
                Expect.equal(List.of("1", "2"), Cluster.texts(messages), "values");
                Cluster.expectSilence(consumer);
            }
        }
    }

    @Scenario
    void aTableShowsACompactedTopicAndWhatComes() throws Exception {
        String topic = Cluster.newTopic();
        try (Producer<String> producer = cluster.producing(topic).create()) {
            sendAll(producer, "a=1", "b=1", "a=2");
            compact(topic);
            expectTable(topic, Map.of("a", "2", "b", "1"), producer);
        }
    }

    @Scenario
    void aTableShowsAllPartitions() throws Exception {
        String topic = Cluster.newTopic();
        cluster.admin.topics().createPartitionedTopic(topic, 3);
        try (Producer<String> producer = cluster.producing(topic).create()) {
            sendAll(producer, "a=1", "b=1", "c=1", "d=1", "e=1", "a=2");
            expectTable(topic, Map.of("a", "2", "b", "1", "c", "1", "d", "1", "e", "1"), producer);
        }
    }

    /** A table has `first`, then takes up what is sent; its listener hears of both. */
    private void expectTable(String topic, Map<String, String> first, Producer<String> producer) throws Exception {
        Map<String, String> heard = new ConcurrentHashMap<>();
        List<String> removed = Collections.synchronizedList(new ArrayList<>());
        try (TableView<String> table = cluster.client.newTableView(Schema.STRING).topic(topic).create()) {
            Expect.equal(first, entries(table), "the table at first");
            table.forEachAndListen((key, value) -> {
                if (value == null) {
                    removed.add(key);
                } else {
                    heard.put(key, value);
                }
            });
            Expect.equal(first, heard, "what the listener heard at first");
            sendAll(producer, "a=3", "b=", "f=1");
            Map<String, String> then = new HashMap<>(first);
            then.put("a", "3");
            then.remove("b");
            then.put("f", "1");
            Expect.eventually(then, () -> entries(table), "the table then");
            Expect.eventually(List.of("b"), () -> List.copyOf(removed), "what the listener heard of removals");
            Expect.eventually("3", () -> heard.get("a"), "what the listener heard of changes");
        }
    }

    private void compact(String topic) throws Exception {
        cluster.admin.topics().triggerCompaction(topic);
        Expect.eventually(LongRunningProcessStatus.Status.SUCCESS,
                () -> cluster.admin.topics().compactionStatus(topic).status, "compaction");
    }

    private Map<String, String> readCompacted(String topic) throws Exception {
        Map<String, String> found = new HashMap<>();
        try (Reader<String> reader = cluster.client.newReader(Schema.STRING).topic(topic)
                .startMessageId(MessageId.earliest).readCompacted(true).create()) {
            for (Message<String> message : Cluster.read(reader)) {
                Expect.equal(null, found.put(message.getKey(), message.getValue()), "another value of " + message.getKey());
            }
        }
        return found;
    }

    private static Map<String, String> entries(TableView<String> table) {
        Map<String, String> found = new HashMap<>();
        table.forEach(found::put);
        return found;
    }

    /** Sends `key=value`, or `key=` to remove one. */
    private static void sendAll(Producer<String> producer, String... pairs) throws Exception {
        for (String pair : pairs) {
            String[] parts = pair.split("=");
            producer.newMessage().key(parts[0]).value(parts.length == 1 ? null : parts[1]).send();
        }
    }
}
