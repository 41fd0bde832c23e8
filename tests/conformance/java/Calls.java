// Runs many of Kafka's tools in one process, one after the other, and keeps what each says.
//
//   Calls DIR < CALLS      each line of CALLS: NAME, class, arguments, divided by the unit separator (0x1f); a last argument that begins
//                          with '<' is the standard input, \n and \t in it are read so. Writes DIR/NAME.out, .err and .code.
import java.io.*;
import java.lang.reflect.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import org.apache.kafka.common.utils.internals.Exit;

public class Calls {
    /** Ends a tool where it would end the process. */
    static class Ended extends Error {
        Ended() { super("exit", null, false, false); }
    }

    static Integer code;
    static boolean done;
    static final List<Runnable> hooks = new ArrayList<>();

    static void ended(int status) {
        if (code != null) throw new Ended();
        code = status;
        // What a tool says after its end, while it unwinds, is not heard in a real process.
        System.out.flush();
        System.err.flush();
        PrintStream nothing = new PrintStream(OutputStream.nullOutputStream());
        System.setOut(nothing);
        System.setErr(nothing);
        throw new Ended();
    }

    public static void main(String[] args) throws Exception {
        Exit.setExitProcedure((status, message) -> ended(status));
        Exit.setHaltProcedure((status, message) -> ended(status));
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        System.setSecurityManager(new SecurityManager() {
            @Override public void checkPermission(java.security.Permission permission) {}
            @Override public void checkPermission(java.security.Permission permission, Object context) {}
            @Override public void checkExit(int status) { if (!done) ended(status); }
        });
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = calls.readLine()) != null) {
            List<String> words = new ArrayList<>(Arrays.asList(line.split("\u001f", -1)));
            run(Paths.get(args[0]), words.remove(0), words.remove(0), words);
        }
        done = true;
        Runtime.getRuntime().halt(0);
    }

    static void run(Path dir, String name, String tool, List<String> args) throws Exception {
        byte[] input = new byte[0];
        if (!args.isEmpty() && args.get(args.size() - 1).startsWith("<")) {
            String text = args.remove(args.size() - 1).substring(1);
            input = text.replace("\\n", "\n").replace("\\t", "\t").getBytes(StandardCharsets.UTF_8);
        }
        ByteArrayOutputStream out = new ByteArrayOutputStream(), err = new ByteArrayOutputStream();
        System.setIn(new ByteArrayInputStream(input));
        System.setOut(new PrintStream(out, true));
        System.setErr(new PrintStream(err, true));
        code = null;
        hooks.clear();
        Thread thread = new Thread(() -> {
            try {
                Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) args.toArray(new String[0]));
            } catch (InvocationTargetException failed) {
                if (!(failed.getCause() instanceof Ended)) {
                    System.err.print("Exception in thread \"main\" ");
                    failed.getCause().printStackTrace();
                    if (code == null) code = 1;
                }
            } catch (ReflectiveOperationException impossible) {
                impossible.printStackTrace();
            }
        }, "main");
        thread.setDaemon(true);
        thread.start();
        thread.join(60_000);
        if (thread.isAlive()) System.err.println("(not done within a minute)");
        // As at the end of a process; a hook may wait for the tool, which has ended.
        for (Runnable hook : new ArrayList<>(hooks)) {
            Thread last = new Thread(hook);
            last.setDaemon(true);
            last.start();
            last.join(5_000);
        }
        System.out.flush();
        System.err.flush();
        Files.write(dir.resolve(name + ".out"), out.toByteArray());
        Files.write(dir.resolve(name + ".err"), err.toByteArray());
        Files.writeString(dir.resolve(name + ".code"), (code == null ? 0 : code) + "\n");
    }
}
