import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import software.amazon.event.ruler.JsonRuleCompiler;
import software.amazon.event.ruler.Machine;

/** Answers each line {"pattern": …, "event": …} of standard input with {"refused": reason} or {"matches": true or false}. */
class Rules {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            System.out.println(answer(JSON.readTree(line)));
        }
    }

    private static ObjectNode answer(JsonNode question) throws Exception {
        String pattern = question.get("pattern").toString();
        String refused = JsonRuleCompiler.check(pattern);
        if (refused != null) {
            return JSON.createObjectNode().put("refused", refused);
        }
        Machine machine = new Machine();
        machine.addRule("rule", pattern);
        boolean matches = !machine.rulesForJSONEvent(question.get("event").toString()).isEmpty();
        return JSON.createObjectNode().put("matches", matches);
    }
}
