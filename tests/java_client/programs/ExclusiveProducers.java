import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerAccessMode;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClientException;

/** Producers that want a topic for themselves. */
final class ExclusiveProducers {
    private final Cluster cluster;

    ExclusiveProducers(Cluster cluster) {
        this.cluster = cluster;
    }

    @Scenario
    void anExclusiveProducerIsAlone() throws Exception {
        String topic = Cluster.newTopic();
        try (Producer<String> first = producing(topic, ProducerAccessMode.Exclusive).create()) {
            Expect.refused(PulsarClientException.ProducerFencedException.class,
                    () -> producing(topic, ProducerAccessMode.Exclusive).create());
            Expect.refused(PulsarClientException.ProducerBusyException.class,
                    () -> producing(topic, ProducerAccessMode.Shared).create());
            first.send("one");
        }
        producing(topic, ProducerAccessMode.Exclusive).create().close();
    }

    @Scenario
    void anExclusiveProducerIsRefusedBesideSharedOnes() throws Exception {
        String topic = Cluster.newTopic();
        try (Producer<String> shared = producing(topic, ProducerAccessMode.Shared).create()) {
            Expect.refused(PulsarClientException.ProducerFencedException.class,
                    () -> producing(topic, ProducerAccessMode.Exclusive).create());
            shared.send("one");
        }
    }

    @Scenario
    void aPatientProducerWaitsForItsTurn() throws Exception {
        String topic = Cluster.newTopic();
        Producer<String> first = producing(topic, ProducerAccessMode.Exclusive).create();
        CompletableFuture<Producer<String>> waiting = producing(topic, ProducerAccessMode.WaitForExclusive).createAsync();
        Thread.sleep(Cluster.SILENCE_MS);
        Expect.that(!waiting.isDone(), "the second producer did not wait");
        first.send("one");
        first.close();
        try (Producer<String> second = waiting.get(Cluster.PATIENCE_S, TimeUnit.SECONDS)) {
            second.send("two");
        }
    }

    @Scenario
    void aFencingProducerTakesTheTopicOver() throws Exception {
        String topic = Cluster.newTopic();
        Producer<String> first = producing(topic, ProducerAccessMode.Exclusive).create();
        first.send("one");
        try (Producer<String> second = producing(topic, ProducerAccessMode.ExclusiveWithFencing).create()) {
            second.send("two");
            Expect.refused(PulsarClientException.ProducerFencedException.class, () -> {
                // It may not have heard of it yet: then its next message is refused, or the one after.
                for (int number = 0; number < 50; number++) {
                    first.send("three");
                    Thread.sleep(20);
                }
                return "sent";
            });
            second.send("four");
        }
    }

    private ProducerBuilder<String> producing(String topic, ProducerAccessMode mode) {
        return cluster.producing(topic).accessMode(mode);
    }
}
