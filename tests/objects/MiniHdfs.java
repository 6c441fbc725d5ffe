import java.io.File;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** HDFS in one process: a name node and two data nodes below the directory that is given, on ports
 *  of the loopback. Prints its URL and serves until its input ends. */
public class MiniHdfs {
    public static void main(String[] args) throws Exception {
        Configuration settings = new Configuration();
        // Small blocks, so that a range of a log lies in several.
        settings.set("dfs.blocksize", "65536");
        settings.set("dfs.namenode.fs-limits.min-block-size", "0");
        MiniDFSCluster.Builder builder = new MiniDFSCluster.Builder(settings, new File(args[0]));
        try (MiniDFSCluster cluster = builder.numDataNodes(2).build()) {
            cluster.waitActive();
            System.out.println(cluster.getURI());
            while (System.in.read() >= 0) {
                // Whoever started it has closed nothing yet.
            }
        }
    }
}
