import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.paimon.Snapshot;
import org.apache.paimon.codegen.CodeGenUtils;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.serializer.InternalRowSerializer;
import org.apache.paimon.deletionvectors.DeletionVector;
import org.apache.paimon.deletionvectors.DeletionVectorsIndexFile;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.fs.Path;
import org.apache.paimon.fs.local.LocalFileIO;
import org.apache.paimon.index.IndexFileHandler;
import org.apache.paimon.io.DataFileMeta;
import org.apache.paimon.manifest.IndexManifestEntry;
import org.apache.paimon.manifest.ManifestEntry;
import org.apache.paimon.predicate.Predicate;
import org.apache.paimon.predicate.PredicateBuilder;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.schema.Schema;
import org.apache.paimon.schema.SchemaManager;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.FileStoreTableFactory;
import org.apache.paimon.table.sink.BatchTableCommit;
import org.apache.paimon.table.sink.BatchTableWrite;
import org.apache.paimon.table.sink.BatchWriteBuilder;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.table.source.Split;
import org.apache.paimon.table.source.StreamTableScan;
import org.apache.paimon.types.DataField;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DataTypeJsonParser;
import org.apache.paimon.types.RowKind;
import org.apache.paimon.types.RowType;
import org.apache.paimon.utils.MurmurHashUtils;

/**
 * Paimon's own implementation, at the service of tests: takes one request a line, as JSON, and answers each with a line of JSON, so
 * that one machine serves many. An answer to a request that fails is {@code {"error": ...}}.
 *
 * <p>Values are in the text of {@link Texts}.
 *
 * <ul>
 *   <li>{@code read}: rows of {@code table}, at its newest snapshot or {@code snapshot} or {@code tag}, ordered by the key as Paimon orders
 *       it; with {@code filter}, a list of [column, operator, value], those that meet all of it.
 *   <li>{@code follow}: the changes that snapshot {@code from} brings to a reader that follows {@code table}, each a kind and a row.
 *   <li>{@code files}: what the manifests and index files say.
 *   <li>{@code rows}: the bytes, hashes and buckets of key rows.
 *   <li>{@code create}: a table with {@code fields}, {@code keys} and {@code options}.
 *   <li>{@code write}: commits {@code upserts} and {@code deletes}; {@code options} override the table's.
 *   <li>{@code compact}: compacts every bucket, fully if {@code full}.
 *   <li>{@code tag}: makes the tag {@code name} of {@code snapshot}.
 * </ul>
 */
public class PaimonEngine {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        // Whatever a library prints must not be taken for an answer.
        PrintStream answers = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = requests.readLine()) != null; ) {
            Object answer;
            try {
                answer = answer(JSON.readTree(line));
            } catch (Throwable failure) {
                StringWriter trace = new StringWriter();
                failure.printStackTrace(new PrintWriter(trace));
                answer = Map.of("error", trace.toString());
            }
            answers.println(JSON.writeValueAsString(answer));
        }
    }

    private static Object answer(JsonNode request) throws Exception {
        switch (request.get("do").asText()) {
            case "read":
                return read(request);
            case "follow":
                return follow(request);
            case "files":
                return files(request);
            case "rows":
                return rows(request);
            case "create":
                return create(request);
            case "write":
                return write(request);
            case "compact":
                return compact(request);
            case "tag":
                table(request).createTag(request.get("name").asText(), request.get("snapshot").asLong());
                return Map.of();
            default:
                throw new IllegalArgumentException(request.toString());
        }
    }

    private static FileStoreTable table(JsonNode request) {
        FileStoreTable table = FileStoreTableFactory.create(LocalFileIO.create(), new Path(request.get("table").asText()));
        Map<String, String> options = options(request);
        return options.isEmpty() ? table : table.copy(options);
    }

    private static Map<String, String> options(JsonNode request) {
        Map<String, String> options = new HashMap<>();
        if (request.has("options")) {
            request.get("options").fields().forEachRemaining(option -> options.put(option.getKey(), option.getValue().asText()));
        }
        return options;
    }

    private static FileStoreTable tableAt(JsonNode request) {
        FileStoreTable table = table(request);
        if (request.has("snapshot")) {
            return table.copy(Map.of("scan.snapshot-id", request.get("snapshot").asText()));
        }
        return request.has("tag") ? table.copy(Map.of("scan.tag-name", request.get("tag").asText())) : table;
    }

    private static Object read(JsonNode request) throws Exception {
        FileStoreTable table = tableAt(request);
        RowType type = table.rowType();
        ReadBuilder builder = table.newReadBuilder();
        if (request.has("filter")) {
            builder.withFilter(filter(type, request.get("filter")));
        }
        List<InternalRow> rows = new ArrayList<>();
        InternalRowSerializer copier = new InternalRowSerializer(type);
        for (Split split : builder.newScan().plan().splits()) {
            try (RecordReader<InternalRow> reader = builder.newRead().executeFilter().createReader(split)) {
                reader.forEachRemaining(row -> {
                    if (row.getRowKind() != RowKind.INSERT && row.getRowKind() != RowKind.UPDATE_AFTER) {
                        throw new IllegalStateException("a row of kind " + row.getRowKind());
                    }
                    rows.add(copier.copy(row));
                });
            }
        }
        List<String> names = type.getFieldNames();
        int[] keys = table.primaryKeys().stream().mapToInt(names::indexOf).toArray();
        Comparator<InternalRow> order = CodeGenUtils.newRecordComparator(type.getFieldTypes(), keys, true);
        rows.sort(order);
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("columns", names);
        answer.put("rows", texts(type, rows));
        return answer;
    }

    private static Object follow(JsonNode request) throws Exception {
        FileStoreTable table = table(request);
        RowType type = table.rowType();
        ReadBuilder builder = table.newReadBuilder();
        StreamTableScan scan = builder.newStreamScan();
        scan.restore(request.get("from").asLong());
        List<Object> changes = new ArrayList<>();
        for (Split split : scan.plan().splits()) {
            try (RecordReader<InternalRow> reader = builder.newRead().createReader(split)) {
                reader.forEachRemaining(row -> changes.add(List.of(row.getRowKind().shortString(), Texts.of(type, row))));
            }
        }
        return Map.of("changes", changes, "next", scan.checkpoint());
    }

    private static List<List<String>> texts(RowType type, List<InternalRow> rows) {
        List<List<String>> texts = new ArrayList<>();
        for (InternalRow row : rows) {
            texts.add(Texts.of(type, row));
        }
        return texts;
    }

    private static Predicate filter(RowType type, JsonNode conditions) {
        PredicateBuilder builder = new PredicateBuilder(type);
        List<Predicate> all = new ArrayList<>();
        for (JsonNode condition : conditions) {
            int column = builder.indexOf(condition.get(0).asText());
            Object value = Texts.parse(type.getTypeAt(column), condition.get(2).asText());
            switch (condition.get(1).asText()) {
                case "=":
                    all.add(builder.equal(column, value));
                    break;
                case ">=":
                    all.add(builder.greaterOrEqual(column, value));
                    break;
                case "<":
                    all.add(builder.lessThan(column, value));
                    break;
                default:
                    throw new IllegalArgumentException(condition.toString());
            }
        }
        return PredicateBuilder.and(all);
    }

    private static Object files(JsonNode request) throws Exception {
        FileStoreTable table = tableAt(request);
        Snapshot snapshot = request.has("tag")
                ? table.tagManager().getOrThrow(request.get("tag").asText()).trimToSnapshot()
                : request.has("snapshot")
                        ? table.snapshotManager().snapshot(request.get("snapshot").asLong())
                        : table.snapshotManager().latestSnapshot();
        Map<String, DeletionVector> vectors = new HashMap<>();
        IndexFileHandler index = table.store().newIndexFileHandler();
        List<String> indexFiles = new ArrayList<>();
        for (IndexManifestEntry entry : index.scan(snapshot, DeletionVectorsIndexFile.DELETION_VECTORS_INDEX)) {
            vectors.putAll(index.readAllDeletionVectors(entry));
            indexFiles.add(entry.indexFile().fileName());
        }
        RowType keys = new RowType(keyFields(table));
        List<Object> files = new ArrayList<>();
        for (ManifestEntry entry : table.store().newScan().withSnapshot(snapshot).plan().files()) {
            DataFileMeta file = entry.file();
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("name", file.fileName());
            line.put("bucket", entry.bucket());
            line.put("total_buckets", entry.totalBuckets());
            line.put("level", file.level());
            line.put("size", file.fileSize());
            line.put("rows", file.rowCount());
            line.put("deletes", file.deleteRowCount().orElse(-1L));
            line.put("schema", file.schemaId());
            line.put("sequences", List.of(file.minSequenceNumber(), file.maxSequenceNumber()));
            line.put("min_key", Texts.of(keys, file.minKey()));
            line.put("max_key", Texts.of(keys, file.maxKey()));
            line.put("min_stats", Texts.of(keys, file.keyStats().minValues()));
            line.put("max_stats", Texts.of(keys, file.keyStats().maxValues()));
            List<Long> deleted = new ArrayList<>();
            DeletionVector vector = vectors.remove(file.fileName());
            if (vector != null) {
                for (long row = 0; row < file.rowCount(); row++) {
                    if (vector.isDeleted(row)) {
                        deleted.add(row);
                    }
                }
                if (deleted.size() != vector.getCardinality()) {
                    throw new IllegalStateException("a deletion vector has rows that file " + file.fileName() + " has not");
                }
            }
            line.put("deleted", deleted);
            files.add(line);
        }
        if (!vectors.isEmpty()) {
            throw new IllegalStateException("deletion vectors without a file: " + vectors.keySet());
        }
        return Map.of("files", files, "index_files", indexFiles, "snapshot", JSON.readTree(snapshot.toJson()));
    }

    private static List<DataField> keyFields(FileStoreTable table) {
        List<DataField> fields = new ArrayList<>();
        for (String key : table.primaryKeys()) {
            fields.add(table.rowType().getField(key));
        }
        return fields;
    }

    private static DataType type(JsonNode node) {
        return DataTypeJsonParser.parseDataType(node);
    }

    private static Object rows(JsonNode request) throws Exception {
        List<DataType> types = new ArrayList<>();
        request.get("types").forEach(node -> types.add(type(node)));
        RowType type = RowType.of(types.toArray(new DataType[0]));
        InternalRowSerializer serializer = new InternalRowSerializer(type);
        List<Object> answers = new ArrayList<>();
        for (JsonNode values : request.get("rows")) {
            BinaryRow row = serializer.toBinaryRow(Texts.row(type, values));
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("bytes", Texts.hex(row.toBytes()));
            answer.put("hash", MurmurHashUtils.hashBytesByWords(row.getSegments()[0], row.getOffset(), row.getSizeInBytes()));
            answer.put("row_hash", row.hashCode());
            List<Integer> buckets = new ArrayList<>();
            for (JsonNode count : request.get("buckets")) {
                buckets.add(new org.apache.paimon.bucket.DefaultBucketFunction().bucket(row, count.asInt()));
            }
            answer.put("buckets", buckets);
            answers.add(answer);
        }
        return Map.of("rows", answers);
    }

    private static Object create(JsonNode request) throws Exception {
        Schema.Builder schema = Schema.newBuilder();
        for (JsonNode field : request.get("fields")) {
            schema.column(field.get(0).asText(), type(field.get(1)));
        }
        List<String> keys = new ArrayList<>();
        request.get("keys").forEach(key -> keys.add(key.asText()));
        schema.primaryKey(keys).options(options(request));
        new SchemaManager(LocalFileIO.create(), new Path(request.get("table").asText())).createTable(schema.build());
        return Map.of();
    }

    private static Object write(JsonNode request) throws Exception {
        FileStoreTable table = table(request);
        BatchWriteBuilder builder = table.newBatchWriteBuilder();
        try (IOManager io = IOManager.create(System.getProperty("java.io.tmpdir"));
                BatchTableWrite write = builder.newWrite();
                BatchTableCommit commit = builder.newCommit()) {
            write.withIOManager(io);
            for (JsonNode values : request.get("upserts")) {
                write.write(Texts.row(table.rowType(), values));
            }
            for (JsonNode values : request.get("deletes")) {
                InternalRow row = Texts.row(table.rowType(), values);
                row.setRowKind(RowKind.DELETE);
                write.write(row);
            }
            commit.commit(write.prepareCommit());
        }
        return Map.of("snapshot", table.snapshotManager().latestSnapshotId());
    }

    private static Object compact(JsonNode request) throws Exception {
        FileStoreTable table = table(request).copy(Map.of("write-only", "false"));
        int buckets = table.coreOptions().bucket();
        BatchWriteBuilder builder = table.newBatchWriteBuilder();
        try (IOManager io = IOManager.create(System.getProperty("java.io.tmpdir"));
                BatchTableWrite write = builder.newWrite();
                BatchTableCommit commit = builder.newCommit()) {
            write.withIOManager(io);
            for (int bucket = 0; bucket < buckets; bucket++) {
                write.compact(BinaryRow.EMPTY_ROW, bucket, request.get("full").asBoolean());
            }
            commit.commit(write.prepareCommit());
        }
        return Map.of("snapshot", table.snapshotManager().latestSnapshotId());
    }
}
