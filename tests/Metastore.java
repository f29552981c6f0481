import java.io.IOException;
import java.io.PrintStream;
import java.net.ServerSocket;
import java.net.Socket;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.conf.MetastoreConf;
import org.apache.hadoop.hive.metastore.conf.MetastoreConf.ConfVars;
import org.apache.hadoop.hive.metastore.events.EventCleanerTask;
import org.apache.hadoop.hive.metastore.txn.AcidHouseKeeperService;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;

/** Hive's metastore on Derby in memory, with the folder of its databases: it says its port, and ends with its input. */
public class Metastore {
  public static void main(String[] arguments) throws Exception {
    PrintStream said = System.out;
    System.setOut(System.err);
    Configuration conf = MetastoreConf.newMetastoreConf();
    MetastoreConf.setVar(conf, ConfVars.CONNECT_URL_KEY, "jdbc:derby:memory:metastore;create=true");
    MetastoreConf.setVar(conf, ConfVars.WAREHOUSE, "file://" + arguments[0]);
    MetastoreConf.setBoolVar(conf, ConfVars.AUTO_CREATE_ALL, true);
    MetastoreConf.setBoolVar(conf, ConfVars.SCHEMA_VERIFICATION, false);
    // Of others the classes are in Hive itself.
    MetastoreConf.setClass(
        conf, ConfVars.EXPRESSION_PROXY_CLASS, DefaultPartitionExpressionProxy.class,
        org.apache.hadoop.hive.metastore.PartitionExpressionProxy.class);
    MetastoreConf.setVar(conf, ConfVars.TASK_THREADS_ALWAYS, EventCleanerTask.class.getName());
    MetastoreConf.setVar(conf, ConfVars.TASK_THREADS_REMOTE_ONLY, AcidHouseKeeperService.class.getName());
    // As the guide asks of whoever lets columns get other types.
    MetastoreConf.setBoolVar(conf, ConfVars.DISALLOW_INCOMPATIBLE_COL_TYPE_CHANGES, false);
    TxnDbUtil.setConfValues(conf);
    TxnDbUtil.prepDb(conf);
    int port;
    try (ServerSocket free = new ServerSocket(0)) {
      port = free.getLocalPort();
    }
    Thread serving = new Thread(() -> {
      try {
        HiveMetaStore.startMetaStore(port, null, conf);
      } catch (Throwable error) {
        error.printStackTrace();
        System.exit(1);
      }
    });
    serving.start();
    while (true) {
      try (Socket tried = new Socket("127.0.0.1", port)) {
        break;
      } catch (IOException error) {
        Thread.sleep(50);
      }
    }
    said.println(port);
    while (System.in.read() >= 0) {}
    System.exit(0);
  }
}
