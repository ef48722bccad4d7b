import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.DataGetters;
import org.apache.paimon.data.Decimal;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DataTypeChecks;
import org.apache.paimon.types.RowType;

/**
 * Values as the text that all readers under test print, which says every bit: numbers in decimal, floating-point numbers and bytes in
 * hex, decimals without their point, dates in days and timestamps in microseconds since 1970. NULL is null.
 */
final class Texts {
    private Texts() {}

    static String hex(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }

    static List<String> of(RowType type, InternalRow row) {
        List<String> texts = new ArrayList<>();
        for (int i = 0; i < type.getFieldCount(); i++) {
            texts.add(row.isNullAt(i) ? null : of(type.getTypeAt(i), row, i));
        }
        return texts;
    }

    private static String of(DataType type, DataGetters row, int i) {
        switch (type.getTypeRoot()) {
            case BOOLEAN:
                return Boolean.toString(row.getBoolean(i));
            case TINYINT:
                return Byte.toString(row.getByte(i));
            case SMALLINT:
                return Short.toString(row.getShort(i));
            case INTEGER:
            case DATE:
                return Integer.toString(row.getInt(i));
            case BIGINT:
                return Long.toString(row.getLong(i));
            case FLOAT:
                return hex(ByteBuffer.allocate(4).putInt(Float.floatToRawIntBits(row.getFloat(i))).array());
            case DOUBLE:
                return hex(ByteBuffer.allocate(8).putLong(Double.doubleToRawLongBits(row.getDouble(i))).array());
            case DECIMAL:
                int precision = DataTypeChecks.getPrecision(type);
                int scale = DataTypeChecks.getScale(type);
                return row.getDecimal(i, precision, scale).toBigDecimal().setScale(scale).unscaledValue().toString();
            case CHAR:
            case VARCHAR:
                return row.getString(i).toString();
            case BINARY:
            case VARBINARY:
                return hex(row.getBinary(i));
            case TIMESTAMP_WITHOUT_TIME_ZONE:
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
                Timestamp at = row.getTimestamp(i, DataTypeChecks.getPrecision(type));
                if (at.getNanoOfMillisecond() % 1000 != 0) {
                    throw new IllegalArgumentException("more than microseconds: " + at);
                }
                return Long.toString(at.toMicros());
            default:
                throw new IllegalArgumentException(type.toString());
        }
    }

    static GenericRow row(RowType type, JsonNode texts) {
        GenericRow row = new GenericRow(type.getFieldCount());
        for (int i = 0; i < type.getFieldCount(); i++) {
            JsonNode text = texts.get(i);
            row.setField(i, text.isNull() ? null : parse(type.getTypeAt(i), text.asText()));
        }
        return row;
    }

    static Object parse(DataType type, String text) {
        switch (type.getTypeRoot()) {
            case BOOLEAN:
                return Boolean.valueOf(text);
            case TINYINT:
                return Byte.valueOf(text);
            case SMALLINT:
                return Short.valueOf(text);
            case INTEGER:
            case DATE:
                return Integer.valueOf(text);
            case BIGINT:
                return Long.valueOf(text);
            case FLOAT:
                return Float.intBitsToFloat(Integer.parseUnsignedInt(text, 16));
            case DOUBLE:
                return Double.longBitsToDouble(Long.parseUnsignedLong(text, 16));
            case DECIMAL:
                return Decimal.fromUnscaledBytes(
                        new BigInteger(text).toByteArray(), DataTypeChecks.getPrecision(type), DataTypeChecks.getScale(type));
            case CHAR:
            case VARCHAR:
                return BinaryString.fromString(text);
            case BINARY:
            case VARBINARY:
                return HexFormat.of().parseHex(text);
            case TIMESTAMP_WITHOUT_TIME_ZONE:
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
                return Timestamp.fromMicros(Long.parseLong(text));
            default:
                throw new IllegalArgumentException(type.toString());
        }
    }
}
