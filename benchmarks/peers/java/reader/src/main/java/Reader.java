import com.scylladb.cdc.lib.CDCConsumer;
import com.scylladb.cdc.model.worker.ChangeSchema.ColumnDefinition;
import com.scylladb.cdc.model.worker.RawChange;
import com.scylladb.cdc.model.worker.RawChangeConsumer;
import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * Reads CDC logs through Scylla's Java library and tells what that cost, for benchmarks/compare.py.
 *
 * <p>Arguments: HOST PORT KEYSPACE. Each line on standard input is a pass, "TABLE KIND ROWS SINCE": read the log of the table
 * until there were ROWS rows. SINCE is ignored: the library starts with the oldest generation. KIND says what the consumer
 * does with each row: "count" nothing, "key" read the primary key, "cells" read every column of the table. The answer is a
 * line of JSON.
 */
public final class Reader {
    private static final long PATIENCE_S = 900;
    private static final long LAG_MS = 1;

    /** The library reads whole windows only, so the last one must have passed: not longer than it takes to fill a log. */
    private static final long WINDOW_MS = 10_000;

    private static final Logger ROOT = Logger.getLogger("");
    private static final CompletableFuture<Void> DONE = CompletableFuture.completedFuture(null);

    public static void main(String[] args) throws Exception {
        if (args.length != 3) {
            throw new IllegalArgumentException("expected HOST PORT KEYSPACE, got " + args.length + " arguments");
        }
        ROOT.setLevel(Level.SEVERE);
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split(" ");
            if (words.length != 4) {
                throw new IllegalArgumentException("not a pass: " + line);
            }
            System.out.println(pass(args, words[0], words[1], Long.parseLong(words[2])));
        }
    }

    private static String pass(String[] server, String table, String kind, long rows) throws Exception {
        var system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long began = System.nanoTime();
        long cpu = system.getProcessCpuTime();
        var tally = new Tally(kind, rows);
        try (var consumer = CDCConsumer.builder()
                .addContactPoint(server[0], Integer.parseInt(server[1]))
                .addTable(server[2], table)
                .withConsumer(tally)
                .withConfidenceWindowSizeMs(LAG_MS)
                .withQueryTimeWindowSizeMs(WINDOW_MS)
                .build()) {
            consumer.start();
            if (!tally.done.await(PATIENCE_S, TimeUnit.SECONDS)) {
                throw new IllegalStateException("it took too long: " + tally.rows + " rows of " + rows);
            }
            double cpuS = (system.getProcessCpuTime() - cpu) / 1e9;
            double wallS = (System.nanoTime() - began) / 1e9;
            return String.format(
                    "{\"rows\": %d, \"check\": %d, \"cpu_s\": %f, \"wall_s\": %f}",
                    tally.rows.get(), tally.check.get(), cpuS, wallS);
        }
    }

    /** Counts. The library's threads share it. */
    private static final class Tally implements RawChangeConsumer {
        final String kind;
        final long wanted;
        final AtomicLong rows = new AtomicLong();
        final AtomicLong check = new AtomicLong();
        final CountDownLatch done = new CountDownLatch(1);
        volatile List<ColumnDefinition> columns;

        Tally(String kind, long wanted) {
            this.kind = kind;
            this.wanted = wanted;
        }

        @Override
        public CompletableFuture<Void> consume(RawChange row) {
            if (kind.equals("key")) {
                if ((Integer) row.getAsObject("pk") >= 0) {
                    check.addAndGet((Long) row.getAsObject("ck"));
                }
            } else if (kind.equals("cells")) {
                check.addAndGet(cells(row));
            }
            if (rows.incrementAndGet() == wanted) {
                done.countDown();
            }
            return DONE;
        }

        private long cells(RawChange row) {
            if (columns == null) {
                columns = row.getSchema().getNonCdcColumnDefinitions();
            }
            long found = 0;
            for (var column : columns) {
                if (row.getAsObject(column) != null) {
                    found++;
                }
            }
            return found;
        }
    }
}
