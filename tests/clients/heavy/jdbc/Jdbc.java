// pgjdbc: metadata as tools ask for it (Metabase, DBeaver, Tableau), and queries in its ways.
// usage: java -cp postgresql.jar Jdbc.java, with the server and the key in the environment as for psql.

import java.sql.Array;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Timestamp;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;

public class Jdbc {
    private static int failures = 0;

    private interface Check {
        void run(Connection connection) throws Exception;
    }

    private static Connection connect() throws SQLException {
        Properties properties = new Properties();
        properties.setProperty("user", System.getenv("PGUSER"));
        properties.setProperty("password", System.getenv("PGPASSWORD"));
        String address = System.getenv("PGHOST") + ":" + System.getenv("PGPORT");
        String url = "jdbc:postgresql://" + address + "/" + System.getenv("PGDATABASE");
        return DriverManager.getConnection(url, properties);
    }

    private static void check(String name, Check check) {
        try (Connection connection = connect()) {
            check.run(connection);
            System.out.println("ok    " + name);
        } catch (Exception | AssertionError error) {
            failures += 1;
            System.out.println("FAIL  " + name + ": " + error);
        }
    }

    private static void equal(Object found, Object expected) {
        if (!expected.equals(found)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }

    /** A column of all rows. */
    private static List<String> column(ResultSet rows, String name) throws SQLException {
        List<String> values = new ArrayList<>();
        while (rows.next()) {
            values.add(rows.getString(name));
        }
        return values;
    }

    private static void names(Connection connection) throws SQLException {
        DatabaseMetaData about = connection.getMetaData();
        equal(about.getDatabaseProductName(), "PostgreSQL");
        equal(connection.getCatalog(), System.getenv("PGDATABASE"));
        equal(column(about.getCatalogs(), "TABLE_CAT"), List.of(System.getenv("PGDATABASE")));
        equal(column(about.getSchemas(), "TABLE_SCHEM").contains("public"), true);
        equal(column(about.getTableTypes(), "TABLE_TYPE").contains("VIEW"), true);
    }

    private static void tables(Connection connection) throws SQLException {
        DatabaseMetaData about = connection.getMetaData();
        String[] types = {"TABLE", "VIEW"};
        equal(column(about.getTables(null, "public", "reviews", types), "TABLE_NAME"), List.of("reviews"));
        String database = connection.getCatalog();
        List<String> tables = column(about.getTables(database, "public", "%", types), "TABLE_NAME");
        equal(tables.contains("reviews"), true);
    }

    private static void columns(Connection connection) throws SQLException {
        DatabaseMetaData about = connection.getMetaData();
        List<String> names = column(about.getColumns(null, "public", "reviews", "%"), "COLUMN_NAME");
        equal(names, List.of("id", "review", "stars"));
        List<String> types = column(about.getColumns(null, "public", "reviews", "%"), "TYPE_NAME");
        equal(types, List.of("int8", "text", "int8"));
    }

    private static void keys(Connection connection) throws SQLException {
        DatabaseMetaData about = connection.getMetaData();
        equal(column(about.getPrimaryKeys(null, "public", "reviews"), "COLUMN_NAME"), List.of());
        equal(column(about.getImportedKeys(null, "public", "reviews"), "FKCOLUMN_NAME"), List.of());
        equal(column(about.getExportedKeys(null, "public", "reviews"), "FKCOLUMN_NAME"), List.of());
        ResultSet cross = about.getCrossReference(null, "public", "reviews", null, "public", "reviews");
        equal(column(cross, "FKCOLUMN_NAME"), List.of());
        equal(column(about.getIndexInfo(null, "public", "reviews", false, true), "INDEX_NAME"), List.of());
        equal(column(about.getBestRowIdentifier(null, "public", "reviews", 0, true), "COLUMN_NAME"), List.of());
    }

    private static void kinds(Connection connection) throws SQLException {
        DatabaseMetaData about = connection.getMetaData();
        List<String> types = column(about.getTypeInfo(), "TYPE_NAME");
        equal(types.containsAll(List.of("int8", "text", "timestamptz", "_text")), true);
        equal(column(about.getProcedures(null, "public", "%"), "PROCEDURE_NAME"), List.of());
        about.getFunctions(null, "pg_catalog", "lower").close();
        about.getUDTs(null, "public", "%", null).close();
        about.getTablePrivileges(null, "public", "reviews").close();
        about.getColumnPrivileges(null, "public", "reviews", "%").close();
        about.getClientInfoProperties().close();
        equal(about.getMaxColumnNameLength(), 63);
        equal(about.getSQLKeywords().isEmpty(), false);
    }

    private static void parameters(Connection connection) throws SQLException {
        String text = "SELECT id, review FROM reviews WHERE id = ? AND stars >= ? AND review LIKE ?";
        try (PreparedStatement statement = connection.prepareStatement(text)) {
            // After five runs pgjdbc prepares the statement on the server and asks for binary values.
            for (int run = 0; run < 8; run++) {
                statement.setLong(1, 1);
                statement.setInt(2, 5);
                statement.setString(3, "%loved%");
                equal(column(statement.executeQuery(), "id"), List.of("1"));
            }
            equal(statement.getMetaData().getColumnTypeName(1), "int8");
            equal(statement.getParameterMetaData().getParameterCount(), 3);
        }
    }

    private static void arrays(Connection connection) throws SQLException {
        String text = "SELECT id FROM reviews WHERE id = ANY(?) ORDER BY id";
        try (PreparedStatement statement = connection.prepareStatement(text)) {
            for (int run = 0; run < 8; run++) {
                Array wanted = connection.createArrayOf("bigint", new Long[] {1L, 4L});
                statement.setArray(1, wanted);
                equal(column(statement.executeQuery(), "id"), List.of("1", "4"));
            }
        }
        try (ResultSet rows = connection.createStatement().executeQuery("SELECT '{a,b}'::text[]")) {
            rows.next();
            equal(Arrays.asList((Object[]) rows.getArray(1).getArray()), List.of("a", "b"));
        }
    }

    private static void times(Connection connection) throws SQLException {
        try (ResultSet rows = connection.createStatement().executeQuery("SELECT now(), DATE '2024-02-29'")) {
            rows.next();
            equal(rows.getMetaData().getColumnTypeName(1), "timestamptz");
            equal(Math.abs(rows.getTimestamp(1).getTime() - System.currentTimeMillis()) < 3_600_000, true);
            equal(rows.getDate(2).toString(), "2024-02-29");
        }
        String text = "SELECT count(*) FROM reviews WHERE now() > ?";
        try (PreparedStatement statement = connection.prepareStatement(text)) {
            statement.setTimestamp(1, new Timestamp(0));
            equal(column(statement.executeQuery(), "count"), List.of("5"));
        }
    }

    private static void transactions(Connection connection) throws SQLException {
        connection.setAutoCommit(false);
        connection.setReadOnly(true);
        connection.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
        try (Statement statement = connection.createStatement()) {
            statement.setFetchSize(2);
            equal(column(statement.executeQuery("SELECT id FROM reviews ORDER BY id"), "id").size(), 5);
        }
        connection.commit();
    }

    private static void scrolling(Connection connection) throws SQLException {
        int kind = ResultSet.TYPE_SCROLL_INSENSITIVE;
        try (Statement statement = connection.createStatement(kind, ResultSet.CONCUR_READ_ONLY)) {
            ResultSet rows = statement.executeQuery("SELECT id FROM reviews ORDER BY id");
            rows.last();
            equal(rows.getLong(1), 5L);
            rows.first();
            equal(rows.getLong(1), 1L);
        }
    }

    private static void batches(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute("CREATE TEMPORARY TABLE pairs (id bigint, word text)");
        }
        String insert = "INSERT INTO pairs (id, word) VALUES (?, ?)";
        try (PreparedStatement statement = connection.prepareStatement(insert)) {
            for (long id = 1; id <= 3; id++) {
                statement.setLong(1, id);
                statement.setString(2, "w" + id);
                statement.addBatch();
            }
            equal(Arrays.stream(statement.executeBatch()).sum(), 3);
        }
        try (Statement statement = connection.createStatement()) {
            ResultSet rows = statement.executeQuery("SELECT word FROM pairs ORDER BY id");
            equal(column(rows, "word"), List.of("w1", "w2", "w3"));
        }
    }

    private static void cancelling(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(1);
            String numbers = "generate_series(1, 100000000)";
            statement.executeQuery("SELECT count(*) FROM " + numbers + " a, " + numbers + " b");
            throw new AssertionError("it was not cancelled");
        } catch (SQLException error) {
            equal(error.getSQLState(), "57014");
        }
        equal(connection.isValid(5), true);
    }

    private static void ai(Connection connection) throws SQLException {
        String text = "SELECT ai_sentiment(review) AS label FROM reviews WHERE id = ?";
        try (PreparedStatement statement = connection.prepareStatement(text)) {
            statement.setLong(1, 1);
            String label = column(statement.executeQuery(), "label").get(0);
            equal(List.of("positive", "negative", "neutral", "mixed").contains(label), true);
        }
    }

    public static void main(String[] arguments) {
        check("names of the database and its schemas", Jdbc::names);
        check("tables", Jdbc::tables);
        check("columns", Jdbc::columns);
        check("keys and indexes", Jdbc::keys);
        check("types, functions and privileges", Jdbc::kinds);
        check("parameters", Jdbc::parameters);
        check("arrays", Jdbc::arrays);
        check("times", Jdbc::times);
        check("transactions and cursors", Jdbc::transactions);
        check("scrolling", Jdbc::scrolling);
        check("batches", Jdbc::batches);
        check("cancelling", Jdbc::cancelling);
        check("an AI column", Jdbc::ai);
        System.exit(failures == 0 ? 0 : 1);
    }
}
