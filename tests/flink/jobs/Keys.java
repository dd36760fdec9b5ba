package jobs;

import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple2;

/** A number's key, of one of several types: the number's rest is told in each of them, in ways that vary bytes. */
final class Keys implements KeySelector<Long, Object> {
    private static final long serialVersionUID = 1L;
    private final String kind;
    private final long keys;

    /** `kind` is string, long, int or tuple. */
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
            default:
                throw new IllegalArgumentException("keys are string, long, int or tuple, not " + kind);
        }
    }

    @SuppressWarnings("unchecked")
    TypeInformation<Object> type() {
        TypeInformation<?> type = kind.equals("string") ? Types.STRING
                : kind.equals("long") ? Types.LONG
                : kind.equals("int") ? Types.INT
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
}
