package jobs;

import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.logical.BigIntType;
import org.apache.flink.table.types.logical.VarCharType;
import org.apache.flink.types.Row;

/** A number's key, of one of several types: the number's rest is told in each of them, in ways that vary bytes. */
final class Keys implements KeySelector<Long, Object> {
    private static final long serialVersionUID = 1L;
    private final String kind;
    private final long keys;

    /** `kind` is string, long, int, tuple, pojo or kryo; named and generic are Rows and RowData that hash otherwise than most. */
    Keys(String kind, long keys) {
        this.kind = kind;
        this.keys = keys;
    }

    @Override
    public Object getKey(Long number) {
        return of(kind, number % keys);
    }

    static Object of(String kind, long rest) {
        switch (kind) {
            case "string":
                return text(rest);
            case "long":
                return whole(rest);
            case "int":
                return (int) (rest % 2 == 0 ? rest : -rest);
            case "tuple":
                return Tuple2.of(text(rest), whole(rest));
            case "pojo":
                return Point.of(rest);
            case "kryo":
                return new Hidden(rest);
            case "named":
                Row row = Row.withNames();
                row.setField("name", text(rest));
                row.setField("number", whole(rest));
                return row;
            case "generic":
                return GenericRowData.of(StringData.fromString(text(rest)), whole(rest));
            default:
                throw new IllegalArgumentException("no kind of keys: " + kind);
        }
    }

    @SuppressWarnings("unchecked")
    TypeInformation<Object> type() {
        TypeInformation<?> type = kind.equals("string") ? Types.STRING
                : kind.equals("long") ? Types.LONG
                : kind.equals("int") ? Types.INT
                : kind.equals("pojo") ? Types.POJO(Point.class)
                : kind.equals("kryo") ? Types.GENERIC(Hidden.class)
                : kind.equals("named") ? Types.ROW_NAMED(new String[] {"name", "number"}, Types.STRING, Types.LONG)
                : kind.equals("generic") ? InternalTypeInfo.ofFields(new VarCharType(VarCharType.MAX_LENGTH), new BigIntType())
                : Types.TUPLE(Types.STRING, Types.LONG);
        return (TypeInformation<Object>) type;
    }

    /** With characters of one, two, three and four bytes. */
    static String text(long rest) {
        String[] ends = {"", "é", "☃", "𝄞", "x"};
        return "key-" + rest + ends[(int) (rest % ends.length)];
    }

    /** Of both signs, beyond 32 bits. */
    static long whole(long rest) {
        return rest % 2 == 0 ? rest : -rest * 4_294_967_311L;
    }

    /** A POJO with a hash code of its own. */
    public static final class Point {
        public String name;
        public long number;
        public Point before;

        static Point of(long rest) {
            Point point = new Point();
            point.name = text(rest);
            point.number = whole(rest);
            if (rest % 3 == 0) {
                point.before = new Point();
                point.before.name = "before";
            }
            return point;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Point && ((Point) other).name.equals(name) && ((Point) other).number == number;
        }

        @Override
        public int hashCode() {
            return 17 * name.hashCode() + Long.hashCode(number) + (before == null ? 1 : 3 * before.hashCode());
        }

        @Override
        public String toString() {
            return name;
        }
    }

    /** What only Kryo writes: it has no constructor without arguments. */
    public static final class Hidden {
        private final String name;
        private final long number;

        Hidden(long rest) {
            name = text(rest);
            number = whole(rest);
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Hidden && ((Hidden) other).name.equals(name) && ((Hidden) other).number == number;
        }

        @Override
        public int hashCode() {
            return name.hashCode() - 7 * (int) number;
        }

        @Override
        public String toString() {
            return name;
        }
    }
}
