package jobs;

/** As it is in the savepoint. */
public class Person {
    public int count;
    public String name;
    public String old;
    public Place home;
    public Kind kind;

    public enum Kind {
        ONE,
        OTHER
    }

    public static class Place {
        public String town;
        public int zip;
    }
}
