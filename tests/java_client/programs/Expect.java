import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;

/** Says what was expected, and what came instead. */
final class Expect {
    private static final long PATIENCE_MS = 60_000;
    private static final long POLL_MS = 20;

    private Expect() {
    }

    static void equal(Object expected, Object found, String what) {
        that(Objects.equals(expected, found), what + ": expected " + expected + ", found " + found);
    }

    static void that(boolean isSo, String otherwise) {
        if (!isSo) {
            throw new AssertionError(otherwise);
        }
    }

    /** Fails unless `call` throws an error of that class, also as the cause of one. Returns that error. */
    static <E extends Exception> E refused(Class<E> expected, Callable<?> call) {
        Object found;
        try {
            found = call.call();
        } catch (Exception error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            if (expected.isInstance(cause)) {
                return expected.cast(cause);
            }
            throw new AssertionError("expected " + expected.getSimpleName() + ", found " + cause, cause);
        }
        throw new AssertionError("expected " + expected.getSimpleName() + ", but it succeeded: " + found);
    }

    /** Asks until the answer is the expected one. */
    static <T> void eventually(T expected, Callable<T> ask, String what) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        T found = ask.call();
        while (!Objects.equals(expected, found) && System.currentTimeMillis() < deadline) {
            Thread.sleep(POLL_MS);
            found = ask.call();
        }
        equal(expected, found, what + ", after " + PATIENCE_MS + " ms");
    }
}
