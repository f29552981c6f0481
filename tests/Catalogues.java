import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import org.apache.iceberg.Files;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

/** Iceberg's REST servlet before catalogues: each line of the input has the properties of one, and gets a port. */
public class Catalogues {
  public static void main(String[] arguments) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = lines.readLine()) != null; ) {
      Map<String, String> properties = new HashMap<>();
      for (String word : line.split(" ")) {
        String[] pair = word.split("=", 2);
        properties.put(pair[0], pair[1]);
      }
      JdbcCatalog catalogue = new JdbcCatalog(unused -> new LocalFiles(), null, true);
      catalogue.initialize("lake", properties);
      RESTCatalogAdapter adapter = new RESTCatalogAdapter(catalogue);
      ServletContextHandler handler = new ServletContextHandler("/");
      handler.addServlet(new ServletHolder(new RESTCatalogServlet(adapter)), "/*");
      Server server = new Server(new InetSocketAddress("127.0.0.1", 0));
      server.setHandler(handler);
      server.start();
      System.out.println(server.getURI().getPort());
    }
    System.exit(0);
  }

  /** Iceberg's own files of this machine, which has none with `file:` before their paths. */
  public static class LocalFiles implements FileIO {
    @Override
    public InputFile newInputFile(String path) {
      return Files.localInput(path);
    }

    @Override
    public OutputFile newOutputFile(String path) {
      return Files.localOutput(Files.localInput(path).location());
    }

    @Override
    public void deleteFile(String path) {
      new File(Files.localInput(path).location()).delete();
    }
  }
}
