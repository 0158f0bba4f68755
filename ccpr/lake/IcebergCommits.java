import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Stream;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.ContentFile;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileMetadata;
import org.apache.iceberg.Files;
import org.apache.iceberg.LocationProviders;
import org.apache.iceberg.ManifestContent;
import org.apache.iceberg.ManifestFile;
import org.apache.iceberg.ManifestFiles;
import org.apache.iceberg.ManifestReader;
import org.apache.iceberg.Metrics;
import org.apache.iceberg.MetricsConfig;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.RewriteFiles;
import org.apache.iceberg.RowDelta;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotUpdate;
import org.apache.iceberg.SortOrder;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableMetadataParser;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.LocationProvider;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.io.PositionOutputStream;
import org.apache.iceberg.parquet.ParquetUtil;
import org.apache.iceberg.relocated.com.google.common.util.concurrent.MoreExecutors;
import org.apache.iceberg.shaded.org.apache.parquet.ParquetReadOptions;
import org.apache.iceberg.shaded.org.apache.parquet.conf.PlainParquetConfiguration;
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.iceberg.shaded.org.apache.parquet.io.LocalInputFile;

/**
 * What commits make of the metadata of tables, many at once, so that Python calls Java once for a point. Compiled when
 * the JVM starts, by the compiler that Spark has: no lambdas, and casts in place of generics.
 */
public class IcebergCommits {
    private static final ObjectMapper JSON = new ObjectMapper();
    /** More than processors: a commit sleeps 10 ms each time that it waits for what Iceberg's own workers write. */
    private static final int THREADS = 16;

    /** Files of this machine. Hadoop's start a program for the mode of each one, and read settings for each. */
    public static class LocalFiles implements FileIO {
        public InputFile newInputFile(String path) {
            return Files.localInput(plain(path));
        }

        public OutputFile newOutputFile(String path) {
            return new LocalOutput(path);
        }

        public void deleteFile(String path) {
            Paths.get(plain(path)).toFile().delete();
        }
    }

    /** A file that metadata name by its address. */
    public static class LocalOutput implements OutputFile {
        private final String path;

        LocalOutput(String path) {
            this.path = path;
        }

        public PositionOutputStream create() {
            try {
                java.nio.file.Files.createDirectories(Paths.get(plain(path)).getParent());
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
            return Files.localOutput(plain(path)).create();
        }

        public PositionOutputStream createOrOverwrite() {
            Paths.get(plain(path)).toFile().delete();
            return create();
        }

        public String location() {
            return path;
        }

        public InputFile toInputFile() {
            return Files.localInput(plain(path));
        }
    }

    private static String plain(String path) {
        return path.substring("file://".length());
    }

    public FileIO localFiles() {
        return new LocalFiles();
    }

    /** Tables after their changes, as `ccpr.lake.iceberg` asks for them, or with their `failure`; nothing but manifests
     * is written. */
    public List staged(FileIO io, String asked) throws Exception {
        List tables = new ArrayList();
        for (Iterator each = JSON.readTree(asked).elements(); each.hasNext(); ) {
            tables.add(new Change(io, (JsonNode) each.next()));
        }
        ExecutorService threads = Executors.newFixedThreadPool(THREADS);
        try {
            Iterator ends = threads.invokeAll(tables).iterator();
            for (Iterator each = tables.iterator(); each.hasNext(); ) {
                Change table = (Change) each.next();
                try {
                    ((Future) ends.next()).get();
                } catch (ExecutionException error) {
                    table.failure = error.getCause().getClass().getSimpleName() + ": " + error.getCause().getMessage();
                }
            }
        } finally {
            threads.shutdown();
        }
        return tables;
    }

    /** Of such tables, as a JSON array of pairs: the metadata, or why there are none. */
    public String contents(List tables) throws Exception {
        List found = new ArrayList();
        for (Iterator each = tables.iterator(); each.hasNext(); ) {
            Change table = (Change) each.next();
            found.add(new String[] {table.failure == null ? table.content : null, table.failure});
        }
        return JSON.writeValueAsString(found);
    }

    /** Of each snapshot but those that are known: paths of its manifests, and of their list. */
    public String manifests(FileIO io, String metadata, String known) throws Exception {
        JsonNode without = JSON.readTree(known);
        ObjectNode found = JSON.createObjectNode();
        for (Iterator each = TableMetadataParser.fromJson(metadata).snapshots().iterator(); each.hasNext(); ) {
            Snapshot snapshot = (Snapshot) each.next();
            String number = String.valueOf(snapshot.snapshotId());
            if (!without.has(number)) {
                com.fasterxml.jackson.databind.node.ArrayNode paths = found.putArray(number);
                paths.add(snapshot.manifestListLocation());
                for (Iterator one = snapshot.allManifests(io).iterator(); one.hasNext(); ) {
                    paths.add(((ManifestFile) one.next()).path());
                }
            }
        }
        return found.toString();
    }

    /** Of snapshots, as a JSON array of their numbers asks for them: paths of the files that each one shows. */
    public String shown(FileIO io, String metadata, String asked) throws Exception {
        TableMetadata table = TableMetadataParser.fromJson(metadata);
        ObjectNode found = JSON.createObjectNode();
        for (Iterator each = JSON.readTree(asked).elements(); each.hasNext(); ) {
            Snapshot snapshot = table.snapshot(((JsonNode) each.next()).asLong());
            com.fasterxml.jackson.databind.node.ArrayNode paths = found.putArray(String.valueOf(snapshot.snapshotId()));
            for (Iterator one = snapshot.allManifests(io).iterator(); one.hasNext(); ) {
                ManifestFile manifest = (ManifestFile) one.next();
                ManifestReader files = manifest.content() == ManifestContent.DATA
                        ? ManifestFiles.read(manifest, io, table.specsById())
                        : ManifestFiles.readDeleteManifest(manifest, io, table.specsById());
                try {
                    for (Iterator file = files.iterator(); file.hasNext(); ) {
                        paths.add(((ContentFile) file.next()).location());
                    }
                } finally {
                    files.close();
                }
            }
        }
        return found.toString();
    }

    /** One table: `base` as it was, `now` as it is to be. */
    public static class Change implements TableOperations, Callable {
        private final FileIO io;
        private final JsonNode asked;
        public TableMetadata base;
        public TableMetadata now;
        public String content;
        public String failure;

        Change(FileIO io, JsonNode asked) {
            this.io = io;
            this.asked = asked;
        }

        public TableMetadata base() {
            return base;
        }

        public Object call() throws Exception {
            change();
            content = TableMetadataParser.toJson(now);
            return this;
        }

        private void change() throws Exception {
            if (asked.hasNonNull("metadata")) {
                now = base = TableMetadataParser.fromJson(text("metadata-location"), text("metadata"));
            }
            if (asked.has("forget")) {
                List past = new ArrayList();
                for (Iterator each = asked.get("forget").elements(); each.hasNext(); ) {
                    past.add(base.snapshot(((JsonNode) each.next()).asLong()));
                }
                now = TableMetadata.buildFrom(base).removeSnapshots(past).build();
                return;
            }
            Schema schema = SchemaParser.fromJson(asked.get("schema").toString());
            if (base == null) {
                int version = asked.get("format-version").asInt();
                TableMetadata.Builder made = TableMetadata.buildFromEmpty(version).assignUUID();
                made.setLocation(text("location")).setCurrentSchema(schema, schema.highestFieldId());
                made.setDefaultPartitionSpec(PartitionSpec.unpartitioned());
                made.setDefaultSortOrder(SortOrder.unsorted());
                now = made.build();
            } else if (!base.schema().sameSchema(schema)) {
                now = base.updateSchema(schema);
            }
            Map properties = new HashMap(now.properties());
            for (Iterator each = asked.get("properties").fields(); each.hasNext(); ) {
                Map.Entry one = (Map.Entry) each.next();
                properties.put(one.getKey(), ((JsonNode) one.getValue()).asText());
            }
            if (!properties.equals(now.properties())) {
                now = TableMetadata.buildFrom(now).setProperties(properties).build();
            }
            BaseTable table = new BaseTable(this, text("name"));
            if (asked.get("anew").asBoolean() && now.currentSnapshot() != null) {
                commit(table.newDelete().deleteFromRowFilter(Expressions.alwaysTrue()));
            }
            commit(changed(table));
        }

        private SnapshotUpdate changed(BaseTable table) throws Exception {
            Snapshot newest = now.currentSnapshot();
            if (asked.get("moved").asBoolean()) {
                RewriteFiles change = table.newRewrite();
                for (Iterator each = of("gone"); each.hasNext(); ) {
                    change.deleteFile(file((JsonNode) each.next(), false));
                }
                for (Iterator each = of("shown"); each.hasNext(); ) {
                    change.deleteFile(deletes((JsonNode) each.next()));
                }
                for (Iterator each = of("come"); each.hasNext(); ) {
                    change.addFile(file((JsonNode) each.next(), true));
                }
                for (Iterator each = of("hidden"); each.hasNext(); ) {
                    change.addFile(deletes((JsonNode) each.next()));
                }
                return newest == null ? change : change.validateFromSnapshot(newest.snapshotId());
            }
            RowDelta change = table.newRowDelta();
            for (Iterator each = of("gone"); each.hasNext(); ) {
                change.removeRows(file((JsonNode) each.next(), false));
            }
            for (Iterator each = of("come"); each.hasNext(); ) {
                change.addRows(file((JsonNode) each.next(), true));
            }
            for (Iterator each = of("shown"); each.hasNext(); ) {
                change.removeDeletes(deletes((JsonNode) each.next()));
            }
            for (Iterator each = of("hidden"); each.hasNext(); ) {
                change.addDeletes(deletes((JsonNode) each.next()));
            }
            // Else a second vector of a file is refused.
            return newest == null ? change : change.validateFromSnapshot(newest.snapshotId());
        }

        private void commit(SnapshotUpdate change) {
            for (Iterator each = asked.get("marks").fields(); each.hasNext(); ) {
                Map.Entry one = (Map.Entry) each.next();
                change.set((String) one.getKey(), ((JsonNode) one.getValue()).asText());
            }
            // Here: each wait for Iceberg's own workers, which are as many as processors, sleeps 10 ms.
            change.scanManifestsWith(MoreExecutors.newDirectExecutorService());
            change.commit();
        }

        /** One that leaves is known by its path alone. */
        private DataFile file(JsonNode one, boolean isNew) throws Exception {
            String path = one.get("path").asText();
            DataFiles.Builder found = DataFiles.builder(PartitionSpec.unpartitioned()).withPath(path);
            found.withFormat("parquet").withFileSizeInBytes(one.get("size").asLong());
            return (isNew ? found.withMetrics(metrics(path)) : found.withRecordCount(1)).build();
        }

        /** As its footer has them. */
        private Metrics metrics(String path) throws Exception {
            MetricsConfig config = MetricsConfig.getDefault();
            if (!path.startsWith("file://")) {
                return ParquetUtil.fileMetrics(io.newInputFile(path), config);
            }
            // The same, without a configuration of Hadoop, which is read anew for each file.
            LocalInputFile content = new LocalInputFile(Paths.get(plain(path)));
            ParquetReadOptions options = ParquetReadOptions.builder(new PlainParquetConfiguration()).build();
            ParquetFileReader reader = ParquetFileReader.open(content, options);
            try {
                return ParquetUtil.footerMetrics(reader.getFooter(), Stream.empty(), config);
            } finally {
                reader.close();
            }
        }

        private DeleteFile deletes(JsonNode one) {
            FileMetadata.Builder found = FileMetadata.deleteFileBuilder(PartitionSpec.unpartitioned());
            found.ofPositionDeletes().withPath(one.get("path").asText()).withFormat(one.get("format").asText());
            found.withFileSizeInBytes(one.get("size").asLong()).withRecordCount(one.get("rows").asLong());
            found.withReferencedDataFile(one.get("of").asText());
            if (one.hasNonNull("offset")) {
                found.withContentOffset(one.get("offset").asLong());
                found.withContentSizeInBytes(one.get("length").asLong());
            }
            return found.build();
        }

        private Iterator of(String name) {
            return asked.get(name).elements();
        }

        private String text(String name) {
            return asked.get(name).asText();
        }

        public TableMetadata current() {
            return now;
        }

        public TableMetadata refresh() {
            return now;
        }

        public void commit(TableMetadata before, TableMetadata after) {
            now = after;
        }

        public FileIO io() {
            return io;
        }

        public String metadataFileLocation(String name) {
            return now.property("write.metadata.path", now.location() + "/metadata") + "/" + name;
        }

        public LocationProvider locationProvider() {
            return LocationProviders.locationsFor(now.location(), now.properties());
        }
    }
}
