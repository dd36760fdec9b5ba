package jobs;

import java.lang.reflect.Array;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Date;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.java.tuple.Tuple;
import org.apache.flink.types.Either;
import org.apache.flink.types.Row;

/** A value as JSON: objects by their fields, rows by f0, f1, ..., maps as pairs; decimals and times as text. */
final class Json {
    private Json() {}

    static String of(Object value) throws IllegalAccessException {
        if (value == null || value instanceof Boolean) {
            return String.valueOf(value);
        }
        if (value instanceof Number && !(value instanceof BigDecimal)) {
            return value.toString();
        }
        if (value instanceof BigDecimal) {
            return text(((BigDecimal) value).toPlainString());
        }
        if (value instanceof Date) {
            return text(((Date) value).toInstant().toString());
        }
        if (value instanceof Enum) {
            return text(((Enum<?>) value).name());
        }
        if (value instanceof Either) {
            Either<?, ?> either = (Either<?, ?>) value;
            return either.isLeft() ? "{\"left\":" + of(either.left()) + "}" : "{\"right\":" + of(either.right()) + "}";
        }
        if (value.getClass().getName().startsWith("jobs.")) {
            return pojo(value);
        }
        return several(value);
    }

    private static String several(Object value) throws IllegalAccessException {
        List<String> items = new ArrayList<>();
        if (value instanceof Row) {
            Row row = (Row) value;
            for (int at = 0; at < row.getArity(); at++) {
                items.add("\"f" + at + "\":" + of(row.getField(at)));
            }
            return "{" + String.join(",", items) + "}";
        }
        if (value instanceof Tuple) {
            for (int at = 0; at < ((Tuple) value).getArity(); at++) {
                items.add(of(((Tuple) value).getField(at)));
            }
        } else if (value instanceof Map) {
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                items.add("[" + of(entry.getKey()) + "," + of(entry.getValue()) + "]");
            }
        } else if (value instanceof Collection) {
            for (Object item : (Collection<?>) value) {
                items.add(of(item));
            }
        } else if (value.getClass().isArray()) {
            for (int at = 0; at < Array.getLength(value); at++) {
                items.add(of(Array.get(value, at)));
            }
        } else {
            return text(value.toString());
        }
        return "[" + String.join(",", items) + "]";
    }

    private static String pojo(Object value) throws IllegalAccessException {
        List<String> items = new ArrayList<>();
        if (value.getClass().getSuperclass() != Object.class) {
            items.add("\"@class\":" + text(value.getClass().getName()));
        }
        for (Field field : value.getClass().getFields()) {
            if (!Modifier.isStatic(field.getModifiers())) {
                items.add(text(field.getName()) + ":" + of(field.get(value)));
            }
        }
        return "{" + String.join(",", items) + "}";
    }

    private static String text(String value) {
        return "\"" + value.replace("\\", "\\\\").replace("\"", "\\\"") + "\"";
    }
}
