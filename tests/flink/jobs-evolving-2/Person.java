package jobs;

/** As the job has it that goes on. */
public class Person {
    public long count;
    public String label;
    public Place home;
    public Kind kind;
    public long visits;
    public Double weight;
    public String note;

    public enum Kind {
        ONE,
        OTHER
    }

    public static class Place {
        public String town;
        public long zip;
        public boolean paid;
    }
}
