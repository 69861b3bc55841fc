// Small programs over Apache BookKeeper's own client: `LedgerProgram <metadata uri> <v2|v3> <program> [argument ...]`.
// Each prints what it found, one `name=value` a line, and ends with an error where it cannot go on.

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Enumeration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.AsyncCallback;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeper.DigestType;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteFlag;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.util.AvailabilityOfEntriesOfLedger;

public class LedgerProgram {
    private static final byte[] PASSWORD = new byte[0];
    private static final int ENSEMBLE = 3;
    private static final int WRITE_QUORUM = 2;
    private static final int EXPLICIT_LAC_INTERVAL_MS = 50;
    private static final long PATIENCE_S = 20;

    private final ClientConfiguration configuration;
    private final BookKeeper client;

    private LedgerProgram(String metadataUri, boolean isV2) throws Exception {
        configuration = new ClientConfiguration();
        configuration.setMetadataServiceUri(metadataUri);
        configuration.setUseV2WireProtocol(isV2);
        configuration.setExplictLacInterval(isV2 ? 0 : EXPLICIT_LAC_INTERVAL_MS);
        client = new BookKeeper(configuration);
    }

    public static void main(String[] words) {
        try {
            LedgerProgram program = new LedgerProgram(words[0], words[1].equals("v2"));
            program.run(words[2], Arrays.copyOfRange(words, 3, words.length));
            program.client.close();
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1); // whatever threads still run
        }
        System.exit(0);
    }

    private void run(String name, String[] arguments) throws Exception {
        switch (name) {
            case "write" -> write(count(arguments[0]), Integer.parseInt(arguments[1]));
            case "read" -> read(id(arguments[0]));
            case "recover" -> recover(count(arguments[0]));
            case "delete" -> delete(count(arguments[0]));
            case "tail" -> tail(count(arguments[0]));
            case "explicit-lac" -> explicitLac();
            case "confirmed" -> confirmed(id(arguments[0]));
            case "deferred-sync" -> deferredSync(count(arguments[0]));
            case "batch-read" -> batchRead(id(arguments[0]), count(arguments[1]));
            case "list-entries" -> listEntries(id(arguments[0]));
            case "disk-space" -> diskSpace();
            default -> throw new IllegalArgumentException("no program is called " + name);
        }
    }

    /** Writes entries of `bytes` bytes, each on two of three bookies; closes. */
    private void write(int entries, int bytes) throws Exception {
        try (LedgerHandle ledger = create()) {
            addAll(ledger, entries, bytes);
            tell("ledger", ledger.getId());
        }
    }

    /** Reads a closed ledger back; an unclosed one is recovered first. */
    private void read(long ledgerId) throws Exception {
        try (LedgerHandle ledger = client.openLedger(ledgerId, DigestType.CRC32C, PASSWORD)) {
            tell("last", ledger.getLastAddConfirmed());
            tell("length", ledger.getLength());
            tell("right", countRight(ledger));
        }
    }

    /** Takes a ledger over from its writer, which must notice. */
    private void recover(int entries) throws Exception {
        LedgerHandle writer = create();
        addAll(writer, entries, 100);
        try (BookKeeper other = new BookKeeper(configuration);
             LedgerHandle reader = other.openLedger(writer.getId(), DigestType.CRC32C, PASSWORD)) {
            tell("last", reader.getLastAddConfirmed());
            tell("right", countRight(reader));
        }
        try {
            writer.addEntry(payload(entries, 100));
            tell("writer", "goes on");
        } catch (BKException.BKLedgerFencedException error) {
            tell("writer", "fenced");
        }
    }

    private void delete(int entries) throws Exception {
        LedgerHandle ledger = create();
        addAll(ledger, entries, 100);
        ledger.close();
        client.deleteLedger(ledger.getId());
        try {
            client.openLedger(ledger.getId(), DigestType.CRC32C, PASSWORD);
            tell("ledger", "still there");
        } catch (BKException.BKNoSuchLedgerExistsOnMetadataServerException error) {
            tell("ledger", "gone");
        }
    }

    /** What bookies say is confirmed of another process's open ledger, and what its writer said without an entry. */
    private void confirmed(long ledgerId) throws Exception {
        try (LedgerHandle reader = client.openLedgerNoRecovery(ledgerId, DigestType.CRC32C, PASSWORD)) {
            tell("explicit", reader.readExplicitLastConfirmed());
        }
    }

    /** A reader that asks for what is confirmed next, and waits for it at the bookies, while a writer writes. */
    private void tail(int entries) throws Exception {
        LedgerHandle writer = create();
        // A bookie knows a ledger from its first entry on, and refuses who waits for one before that.
        addAll(writer, ENSEMBLE, 100);
        LedgerHandle reader = client.openLedgerNoRecovery(writer.getId(), DigestType.CRC32C, PASSWORD);
        Thread adding = new Thread(() -> {
            try {
                for (int entry = ENSEMBLE; entry < entries; entry++) {
                    writer.addEntry(payload(entry, 100));
                    Thread.sleep(20);
                }
            } catch (BKException | InterruptedException error) {
                throw new IllegalStateException(error);
            }
        });
        adding.start();
        int right = 0;
        // The last entry is confirmed by an entry behind it, which never comes.
        while (right < entries - 1) {
            CompletableFuture<LedgerEntry> next = new CompletableFuture<>();
            reader.asyncReadLastConfirmedAndEntry(right, 1000, true, (code, confirmed, entry, context) -> {
                if (code != BKException.Code.OK) {
                    next.completeExceptionally(BKException.create(code));
                } else {
                    next.complete(entry);
                }
            }, null);
            LedgerEntry entry = next.get(PATIENCE_S, TimeUnit.SECONDS);
            if (entry != null && isRight(entry)) {
                right++;
            }
        }
        adding.join();
        writer.close();
        tell("right", right);
    }

    /** A writer that falls silent tells its bookies what is confirmed, without an entry. */
    private void explicitLac() throws Exception {
        LedgerHandle writer = create();
        LedgerHandle reader = client.openLedgerNoRecovery(writer.getId(), DigestType.CRC32C, PASSWORD);
        addAll(writer, 3, 100);
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        long confirmed = -1;
        while (confirmed < 2 && System.nanoTime() < deadline) {
            Thread.sleep(EXPLICIT_LAC_INTERVAL_MS);
            confirmed = reader.readExplicitLastConfirmed();
        }
        tell("confirmed", confirmed);
        writer.close();
    }

    /** Entries that are confirmed by a force only. */
    private void deferredSync(int entries) throws Exception {
        WriteHandle writer = org.apache.bookkeeper.client.api.BookKeeper.newBuilder(configuration).build()
                .newCreateLedgerOp().withEnsembleSize(3).withWriteQuorumSize(3).withAckQuorumSize(2)
                .withPassword(PASSWORD).withWriteFlags(WriteFlag.DEFERRED_SYNC).execute().get();
        for (int entry = 0; entry < entries; entry++) {
            writer.append(payload(entry, 100));
        }
        tell("before", writer.getLastAddConfirmed());
        writer.force().get(PATIENCE_S, TimeUnit.SECONDS);
        tell("after", writer.getLastAddConfirmed());
        writer.close();
    }

    /** Several entries with one request to a bookie; only the V2 protocol has it. */
    private void batchRead(long ledgerId, int entries) throws Exception {
        ReadHandle ledger = client.newOpenLedgerOp().withLedgerId(ledgerId).withPassword(PASSWORD)
                .withDigestType(org.apache.bookkeeper.client.api.DigestType.CRC32C).execute().get();
        try (LedgerEntries read = ledger.batchRead(0, entries, 1 << 20)) {
            int right = 0;
            for (org.apache.bookkeeper.client.api.LedgerEntry entry : read) {
                right += Arrays.equals(entry.getEntryBytes(), payload(right, 100)) ? 1 : 0;
            }
            tell("right", right);
        }
    }

    /** Which entries of a ledger each bookie of its first ensemble says it has: how many, and of how many. */
    private void listEntries(long ledgerId) throws Exception {
        try (BookKeeperAdmin admin = new BookKeeperAdmin(client, configuration);
             LedgerHandle ledger = client.openLedger(ledgerId, DigestType.CRC32C, PASSWORD)) {
            long total = 0;
            long misplaced = 0;
            var ensemble = ledger.getLedgerMetadata().getEnsembleAt(0);
            for (int place = 0; place < ensemble.size(); place++) {
                AvailabilityOfEntriesOfLedger found =
                        admin.asyncGetListOfEntriesOfLedger(ensemble.get(place), ledgerId).get();
                total += found.getTotalNumOfAvailableEntries();
                for (long entry = 0; entry <= ledger.getLastAddConfirmed(); entry++) {
                    boolean isWanted = Math.floorMod(place - entry, ENSEMBLE) < WRITE_QUORUM;
                    misplaced += isWanted == found.isEntryAvailable(entry) ? 0 : 1;
                }
            }
            tell("copies", total);
            tell("misplaced", misplaced);
        }
    }

    private void diskSpace() throws Exception {
        client.getBookieInfo().forEach((bookie, space) -> {
            boolean isSane = 0 < space.getFreeDiskSpace() && space.getFreeDiskSpace() <= space.getTotalDiskSpace();
            tell(bookie.getId(), isSane ? "sane" : space);
        });
    }

    private LedgerHandle create() throws Exception {
        return client.createLedger(ENSEMBLE, WRITE_QUORUM, WRITE_QUORUM, DigestType.CRC32C, PASSWORD);
    }

    private static void addAll(LedgerHandle ledger, int entries, int bytes) throws Exception {
        CompletableFuture<Void> done = new CompletableFuture<>();
        AsyncCallback.AddCallback added = (code, handle, entry, context) -> {
            if (code != BKException.Code.OK) {
                done.completeExceptionally(BKException.create(code));
            } else if (entry == entries - 1) {
                done.complete(null);
            }
        };
        for (int entry = 0; entry < entries; entry++) {
            ledger.asyncAddEntry(payload(entry, bytes), added, null);
        }
        done.get(PATIENCE_S, TimeUnit.SECONDS);
    }

    private static int countRight(LedgerHandle ledger) throws Exception {
        if (ledger.getLastAddConfirmed() < 0) {
            return 0;
        }
        int right = 0;
        Enumeration<LedgerEntry> entries = ledger.readEntries(0, ledger.getLastAddConfirmed());
        while (entries.hasMoreElements()) {
            right += isRight(entries.nextElement()) ? 1 : 0;
        }
        return right;
    }

    private static boolean isRight(LedgerEntry entry) {
        byte[] found = entry.getEntry();
        return Arrays.equals(found, payload(entry.getEntryId(), found.length));
    }

    /** `entry <id> ` again and again, cut at `bytes`; tests on the Python side make the same. */
    private static byte[] payload(long entry, int bytes) {
        byte[] pattern = ("entry " + entry + " ").getBytes(StandardCharsets.US_ASCII);
        byte[] payload = new byte[bytes];
        for (int index = 0; index < bytes; index++) {
            payload[index] = pattern[index % pattern.length];
        }
        return payload;
    }

    private static int count(String word) {
        return Integer.parseInt(word);
    }

    private static long id(String word) {
        return Long.parseLong(word);
    }

    private static void tell(String name, Object value) {
        System.out.println(name + "=" + value);
    }
}
