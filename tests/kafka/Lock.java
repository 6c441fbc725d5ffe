// Takes the lock of a data directory as a broker does, says whether it was had, and keeps it until
// a line comes.
//
//   java -cp 'lib/*' Lock.java LOCK_FILE
import java.io.File;
import org.apache.kafka.server.util.FileLock;

public class Lock {
    public static void main(String[] args) throws Exception {
        FileLock lock = new FileLock(new File(args[0]));
        System.out.println(lock.tryLock());
        System.out.flush();
        System.in.read();
        lock.destroy();
    }
}
