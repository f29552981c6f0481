import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.inject.Module;
import com.google.inject.multibindings.MapBinder;
import io.trino.filesystem.Location;
import io.trino.filesystem.TrinoFileSystem;
import io.trino.filesystem.TrinoFileSystemFactory;
import io.trino.filesystem.local.LocalFileSystemFactory;
import io.trino.plugin.deltalake.DeltaLakeConnectorFactory;
import io.trino.plugin.iceberg.IcebergConnectorFactory;
import io.trino.spi.Plugin;
import io.trino.spi.connector.Connector;
import io.trino.spi.connector.ConnectorContext;
import io.trino.spi.connector.ConnectorFactory;
import io.trino.testing.DistributedQueryRunner;
import io.trino.testing.QueryRunner;
import io.trino.testing.TestingSession;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/**
 * Trino as a reader of tests/readers.py: of Delta tables by their folders, and of Iceberg tables by their names in the
 * REST catalogue that the environment names.
 */
public class Trino {
  private static final ConnectorFactory DELTA = new ConnectorFactory() {
    public String getName() {
      return "delta_lake";
    }

    public Connector create(String name, Map<String, String> said, ConnectorContext context) {
      return DeltaLakeConnectorFactory.createConnector(name, said, context, Optional.empty(), files());
    }
  };
  private static final ConnectorFactory ICEBERG = new ConnectorFactory() {
    public String getName() {
      return "iceberg";
    }

    public Connector create(String name, Map<String, String> said, ConnectorContext context) {
      return IcebergConnectorFactory.createConnector(name, said, context, files(), Optional.empty());
    }
  };

  public static void main(String[] arguments) throws Exception {
    PrintStream said = System.out;
    System.setOut(System.err);
    QueryRunner trino =
        DistributedQueryRunner.builder(TestingSession.testSessionBuilder().build()).setWorkerCount(0).build();
    trino.installPlugin(new Plugin() {
      public Iterable<ConnectorFactory> getConnectorFactories() {
        return List.of(DELTA, ICEBERG);
      }
    });
    String uri = System.getenv("PYICEBERG_CATALOG__LAKE__URI");
    if (uri == null) {
      trino.createCatalog("lake", "delta_lake", Map.of(
          "fs.hadoop.enabled", "false",
          "hive.metastore", "file",
          "hive.metastore.catalog.dir", Path.of(arguments[0]).toUri().toString(),
          "delta.register-table-procedure.enabled", "true"));
      trino.execute("CREATE SCHEMA lake.shop");
    } else {
      trino.createCatalog("lake", "iceberg", Map.of(
          "fs.hadoop.enabled", "false", "iceberg.catalog.type", "rest", "iceberg.rest-catalog.uri", uri));
    }
    Set<String> known = new HashSet<>();
    ObjectMapper json = new ObjectMapper();
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = lines.readLine()) != null; ) {
      JsonNode asked = json.readTree(line);
      String table = asked.get(0).asText();
      Object answer;
      try {
        if (uri == null) {
          String folder = table;
          table = "at_" + Integer.toHexString(folder.hashCode());
          if (known.add(table)) {
            String register = "CALL lake.system.register_table('shop', '%s', 'file://%s')";
            trino.execute(register.formatted(table, folder));
          }
        }
        String version = asked.get(1).isNull() ? "" : " FOR VERSION AS OF " + asked.get(1);
        String sql = asked.get(2).asText().replace("TABLE", "lake.shop." + table + version);
        answer = trino.execute(sql).getMaterializedRows().stream().map(row -> row.getFields()).toList();
      } catch (Exception error) {
        answer = error.toString();
      }
      said.println(json.writeValueAsString(answer));
      said.flush();
    }
    System.exit(0);
  }

  /** Files of this machine. Trino has those of `local:` for its tests. */
  private static Module files() {
    TrinoFileSystemFactory local = new LocalFileSystemFactory(Path.of("/"));
    TrinoFileSystemFactory file = identity -> {
      TrinoFileSystem inner = local.create(identity);
      return (TrinoFileSystem) Proxy.newProxyInstance(
          Trino.class.getClassLoader(), new Class<?>[] {TrinoFileSystem.class}, (proxy, method, given) -> {
            for (int i = 0; given != null && i < given.length; i++) {
              if (given[i] instanceof Location location) {
                given[i] = Location.of(location.toString().replaceFirst("^file:/+", "local:///"));
              }
            }
            try {
              return method.invoke(inner, given);
            } catch (InvocationTargetException error) {
              throw error.getCause();
            }
          });
    };
    return binder -> {
      var each = MapBinder.newMapBinder(binder, String.class, TrinoFileSystemFactory.class);
      each.addBinding("local").toInstance(local);
      each.addBinding("file").toInstance(file);
    };
  }
}
