#include "text/jinja/template.h"

#include "core/error.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"

namespace ridge::text::jinja {

Template Template::parse(std::string_view source, std::string_view origin) {
    Template out;
    out.origin_ = origin;
    out.program_ = parse_program(source, origin);
    return out;
}

std::vector<Segment> Template::render(const Json &variables, const RenderOptions &options) const {
    static const Json kNone = Json::object();
    const Json &given = variables.is_null() ? kNone : variables;
    if (!given.is_object()) {
        fail(ErrorKind::usage, "{}: the variables of a chat template are a JSON object, not {}", origin_,
             given.type_name());
    }
    return Interpreter(*program_, origin_, given, options).run();
}

}  // namespace ridge::text::jinja
