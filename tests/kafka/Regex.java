import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Matches texts with a regular expression. A line in: the expression and texts, with tabs between. A line out: "error",
 * or for each text, with tabs between, the text with its first match in brackets if the expression matches the whole, else "-".
 */
public class Regex {
  public static void main(String[] arguments) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    for (String line; (line = in.readLine()) != null; ) {
      String[] parts = line.split("\t", -1);
      StringBuilder answer = new StringBuilder();
      try {
        Pattern pattern = Pattern.compile(parts[0]);
        for (int at = 1; at < parts.length; at++) {
          Matcher matcher = pattern.matcher(parts[at]);
          answer.append(at == 1 ? "" : "\t").append(matcher.matches() ? matcher.replaceFirst("[$0]") : "-");
        }
      } catch (RuntimeException | StackOverflowError e) {
        answer = new StringBuilder("error");
      }
      out.println(answer);
    }
  }
}
