// f32 and f64 arithmetic. Rounding is to nearest even, the only mode that stepc emits; approximate functions are the
// host's correctly rounded ones (or nearly), which the hardware's differ from within the error that PTX states.
#include <algorithm>

#include "runtime/emulator/instructions/execute.h"
#include "runtime/emulator/instructions/families.h"

namespace stepc::emulator {
namespace {

template <class T>
T add(T a, T b) {
  return a + b;
}
template <class T>
T sub(T a, T b) {
  return a - b;
}
template <class T>
T mul(T a, T b) {
  return a * b;
}
template <class T>
T div(T a, T b) {
  return a / b;
}
template <class T>
T fused(T a, T b, T c) {
  return std::fma(a, b, c);
}
// The number where the other is NaN; -0 is below +0.
template <class T>
T min_of(T a, T b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
template <class T>
T max_of(T a, T b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a < b ? b : a;
}
// .NaN: NaN if either is.
template <class T>
T min_nan(T a, T b) {
  return a != a || b != b ? std::numeric_limits<T>::quiet_NaN() : min_of(a, b);
}
template <class T>
T max_nan(T a, T b) {
  return a != a || b != b ? std::numeric_limits<T>::quiet_NaN() : max_of(a, b);
}
template <class T>
T negate(T a) {
  return -a;
}
template <class T>
T absolute(T a) {
  return std::fabs(a);
}
template <class T>
T square_root(T a) {
  return std::sqrt(a);
}
template <class T>
T reciprocal(T a) {
  return 1 / a;
}
// From double, so that the one rounding is the last.
template <class T>
T reciprocal_root(T a) {
  return static_cast<T>(1 / std::sqrt(static_cast<double>(a)));
}
float exp2_of(float a) { return std::exp2(a); }
float log2_of(float a) { return std::log2(a); }
float sine(float a) { return std::sin(a); }
float cosine(float a) { return std::cos(a); }
float hyperbolic_tangent(float a) { return std::tanh(a); }
float saturate(float a) { return a != a ? 0.0f : std::clamp(a, 0.0f, 1.0f); }

// F with .ftz on its operands and result, and one NaN; `Sat`: clamped to [0, 1].
template <auto F, bool Ftz, bool Sat>
float wrapped1(float a) {
  const float r = flush<Ftz>(F(flush<Ftz>(a)));
  return Sat ? saturate(r) : one_nan(r);
}
template <auto F, bool Ftz, bool Sat>
float wrapped2(float a, float b) {
  const float r = flush<Ftz>(F(flush<Ftz>(a), flush<Ftz>(b)));
  return Sat ? saturate(r) : one_nan(r);
}
template <auto F, bool Ftz, bool Sat>
float wrapped3(float a, float b, float c) {
  const float r = flush<Ftz>(F(flush<Ftz>(a), flush<Ftz>(b), flush<Ftz>(c)));
  return Sat ? saturate(r) : one_nan(r);
}
template <auto F>
double wrapped1d(double a) {
  return one_nan(F(a));
}
template <auto F>
double wrapped2d(double a, double b) {
  return one_nan(F(a, b));
}
template <auto F>
double wrapped3d(double a, double b, double c) {
  return one_nan(F(a, b, c));
}

struct Modes {
  bool ftz = false;
  bool sat = false;
};

template <auto F>
Handler unary32(Modes m) {
  if (m.sat)
    return m.ftz ? &unary_handler<float, float, &wrapped1<F, true, true>>
                 : &unary_handler<float, float, &wrapped1<F, false, true>>;
  return m.ftz ? &unary_handler<float, float, &wrapped1<F, true, false>>
               : &unary_handler<float, float, &wrapped1<F, false, false>>;
}
template <auto F>
Handler binary32(Modes m) {
  if (m.sat)
    return m.ftz ? &binary_handler<float, float, &wrapped2<F, true, true>>
                 : &binary_handler<float, float, &wrapped2<F, false, true>>;
  return m.ftz ? &binary_handler<float, float, &wrapped2<F, true, false>>
               : &binary_handler<float, float, &wrapped2<F, false, false>>;
}
template <auto F>
Handler ternary32(Modes m) {
  if (m.sat)
    return m.ftz ? &ternary_handler<float, float, &wrapped3<F, true, true>>
                 : &ternary_handler<float, float, &wrapped3<F, false, true>>;
  return m.ftz ? &ternary_handler<float, float, &wrapped3<F, true, false>>
               : &ternary_handler<float, float, &wrapped3<F, false, false>>;
}

struct Function {
  std::string_view name;
  int sources;
  bool nan;          // the form with .NaN
  bool approximate;  // only the .approx form
  Handler (*single)(Modes);
  Handler twice;  // the f64 form
};
constexpr Function kFunctions[] = {
    {"add", 2, false, false, &binary32<&add<float>>, &binary_handler<double, double, &wrapped2d<&add<double>>>},
    {"sub", 2, false, false, &binary32<&sub<float>>, &binary_handler<double, double, &wrapped2d<&sub<double>>>},
    {"mul", 2, false, false, &binary32<&mul<float>>, &binary_handler<double, double, &wrapped2d<&mul<double>>>},
    {"div", 2, false, false, &binary32<&div<float>>, &binary_handler<double, double, &wrapped2d<&div<double>>>},
    {"fma", 3, false, false, &ternary32<&fused<float>>, &ternary_handler<double, double, &wrapped3d<&fused<double>>>},
    {"mad", 3, false, false, &ternary32<&fused<float>>, &ternary_handler<double, double, &wrapped3d<&fused<double>>>},
    {"min", 2, false, false, &binary32<&min_of<float>>, &binary_handler<double, double, &wrapped2d<&min_of<double>>>},
    {"max", 2, false, false, &binary32<&max_of<float>>, &binary_handler<double, double, &wrapped2d<&max_of<double>>>},
    {"min", 2, true, false, &binary32<&min_nan<float>>, nullptr},
    {"max", 2, true, false, &binary32<&max_nan<float>>, nullptr},
    {"neg", 1, false, false, &unary32<&negate<float>>, &unary_handler<double, double, &wrapped1d<&negate<double>>>},
    {"abs", 1, false, false, &unary32<&absolute<float>>, &unary_handler<double, double, &wrapped1d<&absolute<double>>>},
    {"sqrt", 1, false, false, &unary32<&square_root<float>>,
     &unary_handler<double, double, &wrapped1d<&square_root<double>>>},
    {"rcp", 1, false, false, &unary32<&reciprocal<float>>,
     &unary_handler<double, double, &wrapped1d<&reciprocal<double>>>},
    {"rsqrt", 1, false, true, &unary32<&reciprocal_root<float>>,
     &unary_handler<double, double, &wrapped1d<&reciprocal_root<double>>>},
    {"ex2", 1, false, true, &unary32<&exp2_of>, nullptr},
    {"lg2", 1, false, true, &unary32<&log2_of>, nullptr},
    {"sin", 1, false, true, &unary32<&sine>, nullptr},
    {"cos", 1, false, true, &unary32<&cosine>, nullptr},
    {"tanh", 1, false, true, &unary32<&hyperbolic_tangent>, nullptr},
};

const Function* find_function(std::string_view name, bool nan) {
  for (const Function& f : kFunctions)
    if (f.name == name && f.nan == nan) return &f;
  return nullptr;
}

// copysign d, a, b: the sign of a on the magnitude of b.
float with_sign_of(float a, float b) { return std::copysign(b, a); }
double with_sign_of64(double a, double b) { return std::copysign(b, a); }

void decode_float(Form& f, Type type) {
  Modes modes;
  modes.ftz = f.take("ftz");
  modes.sat = f.take("sat");
  const bool approximate = f.take_any({"approx", "full"});
  f.take("rn");
  const Function* function = find_function(f.name(), f.take("NaN"));
  if (!function) return f.fail("no such form");
  if (function->approximate && !approximate) return f.fail("only the .approx form exists");
  set_operands(f, type, function->sources);
  set_handler(f, type == Type::f32 ? function->single(modes) : function->twice);
}

void decode_arithmetic(Form& f) {
  const Type type = f.take_type();
  if (type == Type::f32 || type == Type::f64) return decode_float(f, type);
  if (!is_integer(type)) return f.fail(fmt::format("no such form for .{}", type_name(type)));
  if (!decode_integer(f, type)) f.fail("no such form");
}

void decode_copysign(Form& f) {
  const Type type = f.take_type();
  if (type != Type::f32 && type != Type::f64) return f.fail("no such form");
  set_operands(f, type, 2);
  set_handler(f, type == Type::f32 ? &binary_handler<float, float, &with_sign_of>
                                   : &binary_handler<double, double, &with_sign_of64>);
}

constexpr InstructionEntry kEntries[] = {
    {"add", &decode_arithmetic}, {"sub", &decode_arithmetic},  {"mul", &decode_arithmetic},
    {"mad", &decode_arithmetic}, {"fma", &decode_arithmetic},  {"div", &decode_arithmetic},
    {"rem", &decode_arithmetic}, {"min", &decode_arithmetic},  {"max", &decode_arithmetic},
    {"neg", &decode_arithmetic}, {"abs", &decode_arithmetic},  {"sad", &decode_arithmetic},
    {"rcp", &decode_arithmetic}, {"sqrt", &decode_arithmetic}, {"rsqrt", &decode_arithmetic},
    {"ex2", &decode_arithmetic}, {"lg2", &decode_arithmetic},  {"sin", &decode_arithmetic},
    {"cos", &decode_arithmetic}, {"tanh", &decode_arithmetic}, {"copysign", &decode_copysign},
};

}  // namespace

std::span<const InstructionEntry> arithmetic_family() { return kEntries; }

}  // namespace stepc::emulator
