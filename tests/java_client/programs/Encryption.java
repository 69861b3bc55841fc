import java.nio.charset.StandardCharsets;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.util.Arrays;
import java.util.Base64;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.ConsumerCryptoFailureAction;
import org.apache.pulsar.client.api.CryptoKeyReader;
import org.apache.pulsar.client.api.EncryptionKeyInfo;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;

/** Messages that the broker cannot read. */
final class Encryption {
    private static final String KEY = "k1";
    private static final int KEY_BITS = 2048;
    /** What PKCS #8 puts in front of an RSA key of that size; the client reads keys without it, as PKCS #1. */
    private static final int PKCS8_HEADER_BYTES = 26;

    private final Cluster cluster;
    private final PemKeys keys;

    Encryption(Cluster cluster) throws Exception {
        this.cluster = cluster;
        KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA");
        generator.initialize(KEY_BITS);
        keys = new PemKeys(generator.generateKeyPair());
    }

    @Scenario
    void encryptedBatchesAreReadWithTheKey() throws Exception {
        String topic = Cluster.newTopic();
        try (Consumer<byte[]> consumer = consuming(topic).cryptoKeyReader(keys).subscribe();
             Producer<byte[]> producer = producing(topic).batchingMaxPublishDelay(1, TimeUnit.HOURS).create()) {
            for (int number = 0; number < 20; number++) {
                producer.sendAsync(bytes("m" + number));
            }
            producer.flush();
            for (int number = 0; number < 20; number++) {
                Message<byte[]> message = consumer.receive(Cluster.PATIENCE_S, TimeUnit.SECONDS);
                Expect.equal("m" + number, new String(message.getData(), StandardCharsets.UTF_8), "message");
                Expect.that(message.getEncryptionCtx().isPresent(), "the message was not encrypted");
            }
        }
    }

    @Scenario
    void encryptedChunksAreReadWithTheKey() throws Exception {
        String topic = Cluster.newTopic();
        byte[] sent = new byte[7 << 20];
        new Random(2).nextBytes(sent);
        try (Consumer<byte[]> consumer = consuming(topic).cryptoKeyReader(keys).subscribe();
             Producer<byte[]> producer = producing(topic).enableBatching(false).enableChunking(true).create()) {
            producer.send(sent);
            Message<byte[]> message = consumer.receive(Cluster.PATIENCE_S, TimeUnit.SECONDS);
            Expect.that(message != null && Arrays.equals(sent, message.getData()), "what came is not what was sent");
        }
    }

    @Scenario
    void withoutTheKeyThereIsNothingToRead() throws Exception {
        String topic = Cluster.newTopic();
        try (Consumer<byte[]> blind = consuming(topic).cryptoFailureAction(ConsumerCryptoFailureAction.CONSUME).subscribe();
             Producer<byte[]> producer = producing(topic).enableBatching(false).create()) {
            producer.send(bytes("secret"));
            Message<byte[]> message = blind.receive(Cluster.PATIENCE_S, TimeUnit.SECONDS);
            Expect.that(!Arrays.equals(bytes("secret"), message.getData()), "the secret stands there for all to read");
            Expect.equal(Set.of(KEY), message.getEncryptionCtx().orElseThrow().getKeys().keySet(), "its keys");
        }
    }

    @Scenario
    void aConsumerThatCannotReadFailsWithoutLosingAnything() throws Exception {
        String topic = Cluster.newTopic();
        try (Consumer<byte[]> blind = consuming(topic).subscribe();
             Producer<byte[]> producer = producing(topic).enableBatching(false).create()) {
            producer.send(bytes("secret"));
            Expect.that(blind.receive(Cluster.SILENCE_MS, TimeUnit.MILLISECONDS) == null, "it received something");
        }
        try (Consumer<byte[]> consumer = consuming(topic).cryptoKeyReader(keys).subscribe()) {
            Message<byte[]> message = consumer.receive(Cluster.PATIENCE_S, TimeUnit.SECONDS);
            Expect.that(message != null && Arrays.equals(bytes("secret"), message.getData()), "who has the key read it not");
        }
    }

    private ProducerBuilder<byte[]> producing(String topic) {
        return cluster.client.newProducer().topic(topic).addEncryptionKey(KEY).cryptoKeyReader(keys);
    }

    private ConsumerBuilder<byte[]> consuming(String topic) {
        return cluster.client.newConsumer().topic(topic).subscriptionName("s");
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** A pair of keys in the form in which they stand in files. */
    private static final class PemKeys implements CryptoKeyReader {
        private static final long serialVersionUID = 1;
        private final byte[] publicKey;
        private final byte[] privateKey;

        PemKeys(KeyPair pair) {
            publicKey = pem("PUBLIC KEY", pair.getPublic().getEncoded());
            byte[] pkcs8 = pair.getPrivate().getEncoded();
            privateKey = pem("RSA PRIVATE KEY", Arrays.copyOfRange(pkcs8, PKCS8_HEADER_BYTES, pkcs8.length));
        }

        @Override
        public EncryptionKeyInfo getPublicKey(String name, Map<String, String> metadata) {
            return new EncryptionKeyInfo(publicKey, metadata);
        }

        @Override
        public EncryptionKeyInfo getPrivateKey(String name, Map<String, String> metadata) {
            return new EncryptionKeyInfo(privateKey, metadata);
        }

        private static byte[] pem(String kind, byte[] key) {
            String text = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(key);
            return bytes("-----BEGIN " + kind + "-----\n" + text + "\n-----END " + kind + "-----\n");
        }
    }
}
