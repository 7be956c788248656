"""Functions on which the constants of the adaptive ladder were chosen."""

from __future__ import annotations

import numpy as np

from tests.differentiation.catalogue import (
    F32,
    Case,
    bisection,
    cosine_slope,
    fixed_point,
    inside,
    kepler_slope,
    newton,
    rounded,
    series_exp,
    simpson_adaptive,
    single,
    smooth,
    solved,
)

TUNED: list[Case] = [
    # plain
    *smooth("plain", "exp", lambda t, x: t.exp(x), 1, -3, 1e-12, 0, 20),
    *smooth("plain", "sin", lambda t, x: t.sin(x), 1, 0, 1e-9, 100, 1000, 1e6),
    *smooth("plain", "cos", lambda t, x: t.cos(x), 1e-3, 3, 1e4),
    *smooth("plain", "x^7", lambda t, x: x**7, 1.3, 1e-4, 1e5, -2),
    *smooth(
        "plain", "1/(1+25x^2)", lambda t, x: 1 / (1 + 25 * x * x), 0.1, 0.9, 3, 1e3
    ),
    *smooth("plain", "softplus", lambda t, x: t.log(1 + t.exp(x)), -5, 0, 3, 12),
    *smooth("plain", "tanh", lambda t, x: t.tanh(x), 0.5, 2, 1e-6),
    *smooth("plain", "atan", lambda t, x: t.atan(x), 0.3, 50, 1e6),
    *smooth("plain", "x exp(-x^2)", lambda t, x: x * t.exp(-x * x), 0.4, 2, 4),
    *smooth(
        "plain", "sin(x^2)exp(x/3)", lambda t, x: t.sin(x * x) * t.exp(x / 3), 2, 5
    ),
    # scales
    *smooth("scale", "exp(1e8x)", lambda t, x: t.exp(1e8 * x), 1e-8, 0, 3e-9),
    *smooth("scale", "sin(1e12x)", lambda t, x: t.sin(1e12 * x), 1e-12, 3e-12, 0),
    *smooth("scale", "tanh(1e-8x)", lambda t, x: t.tanh(1e-8 * x), 1e8, 1, 0),
    *smooth("scale", "exp(1e-12x)", lambda t, x: t.exp(1e-12 * x), 1e12, 1e9, 1),
    *smooth("scale", "1e12 cos", lambda t, x: 1e12 * t.cos(x), 1, 0.1),
    *smooth("scale", "1e-12 cos", lambda t, x: 1e-12 * t.cos(x), 1, 1e-3),
    *smooth("scale", "1e-300 exp", lambda t, x: 1e-300 * t.exp(x), 1),
    *smooth("scale", "x^2 1e8", lambda t, x: 1e8 * x * x, 1e-8, 1e8),
    *smooth(
        "scale", "sqrt(1+1e-16x^2)", lambda t, x: t.sqrt(1 + 1e-16 * x * x), 1e8, 3
    ),
    # offsets
    *smooth("offset", "1e6+sin", lambda t, x: 1e6 + t.sin(x), 1, 0.1),
    *smooth("offset", "1e12+sin", lambda t, x: 1e12 + t.sin(x), 1),
    *smooth("offset", "3e12+1e-3x", lambda t, x: 3e12 + 1e-3 * x, 1, 10),
    *smooth("offset", "1e9+x^2", lambda t, x: 1e9 + x * x, 1, 1e-3, 1e3),
    *smooth("offset", "exp(x-1e6)", lambda t, x: t.exp(x - 1e6), 1e6, 1e6 + 1),
    *smooth("offset", "sin(x+1e8)", lambda t, x: t.sin(x + 1e8), 1, 0),
    *smooth("offset", "(x-1e4)^2", lambda t, x: (x - 1e4) ** 2, 1e4 + 1, 1e4 + 1e-3),
    *smooth("offset", "1e12-1e-12x", lambda t, x: 1.0 + 1e-12 * t.sin(x), 1),
    *smooth("offset", "log(1e10+x)", lambda t, x: t.log(1e10 + x), 1, 1e3),
    # oscillation
    *smooth("oscillation", "sin(1e-4x)", lambda t, x: t.sin(1e-4 * x), 1, 1e4),
    *smooth("oscillation", "sin(30x)", lambda t, x: t.sin(30 * x), 1, 0.1, 0),
    *smooth("oscillation", "sin(300x)", lambda t, x: t.sin(300 * x), 1, 0.7, 3),
    *smooth("oscillation", "sin(3000x)", lambda t, x: t.sin(3000 * x), 1, 2, 0.01),
    *smooth("oscillation", "sin(1e5x)", lambda t, x: t.sin(1e5 * x), 1, 0.3, 0),
    *smooth("oscillation", "cos(2e4x)+x", lambda t, x: t.cos(2e4 * x) + x, 1, 0.25),
    *smooth("oscillation", "sin(1/x)", lambda t, x: t.sin(1 / x), 0.01, 1e-3, 1e-4),
    *smooth("oscillation", "sin(exp(x))", lambda t, x: t.sin(t.exp(x)), 3, 7, 10),
    # two scales
    *smooth(
        "two scales", "x+1e-3sin(1e3x)", lambda t, x: x + 1e-3 * t.sin(1e3 * x), 1, 0.2
    ),
    *smooth("two scales", "x+1e-4sin(1e5x)", lambda t, x: x + 1e-4 * t.sin(1e5 * x), 1),
    *smooth(
        "two scales", "x+1e-6sin(1e5x)", lambda t, x: x + 1e-6 * t.sin(1e5 * x), 1, 0.7
    ),
    *smooth(
        "two scales",
        "exp+tanh(1e4(x-1))",
        lambda t, x: t.exp(x) + t.tanh(1e4 * (x - 1)),
        1,
        1.0001,
        1.01,
        2,
    ),
    *smooth(
        "two scales",
        "sin+1e-8sin(1e4x)",
        lambda t, x: t.sin(x) + 1e-8 * t.sin(1e4 * x),
        0.5,
    ),
    *smooth(
        "two scales",
        "narrow bump",
        lambda t, x: x * x + t.exp(-(((x - 1) * 1e5) ** 2)),
        1,
        1.00001,
        1.0001,
    ),
    *smooth(
        "two scales",
        "sqrt(x^2+1e-12)",
        lambda t, x: t.sqrt(x * x + 1e-12),
        1e-6,
        1e-3,
        0,
        1,
    ),
    *smooth("two scales", "atan(1e6x)", lambda t, x: t.atan(1e6 * x), 0, 1e-6, 1e-3),
    # poles and edges
    *smooth("pole", "1/x", lambda t, x: 1 / x, 1e-3, 1e-9, 7, 1e9),
    *smooth("pole", "1/(x-1)", lambda t, x: 1 / (x - 1), 1.001, 1.00001, 1 + 1e-8, 3),
    *smooth("pole", "tan", lambda t, x: t.tan(x), 1.57, 1.5707, 1),
    *smooth("pole", "1/(x-1)^2", lambda t, x: 1 / (x - 1) ** 2, 1.0001, 0.9),
    *smooth("edge", "log", lambda t, x: t.log(x), 1e-8, 1e-3, 1, 1e12),
    *smooth("edge", "sqrt(x-1)", lambda t, x: t.sqrt(x - 1), 1.0001, 1 + 1e-7, 2),
    *smooth("edge", "asin", lambda t, x: t.asin(x), 0.999999, 0.9, 1 - 1e-10),
    *smooth("edge", "log(1-x^2)", lambda t, x: t.log(1 - x * x), 0.99999, 0.5),
    *smooth("edge", "x log x", lambda t, x: x * t.log(x), 1e-6, 0.3679, 5),
    *smooth("edge", "sqrt(1-x)", lambda t, x: t.sqrt(1 - x), 1 - 1e-5, 0.5),
    # saturation
    *smooth("saturation", "tanh", lambda t, x: t.tanh(x), 8, 15, 18),
    *smooth("saturation", "sigmoid", lambda t, x: 1 / (1 + t.exp(-x)), 10, 25, 40, -30),
    *smooth("saturation", "erf", lambda t, x: t.erf(x), 3, 5),
    *smooth("saturation", "exp(-x)", lambda t, x: t.exp(-x), 50, 700),
    *smooth("saturation", "exp(-x^2)+1", lambda t, x: t.exp(-x * x) + 1, 4, 7),
    # cancellation
    *smooth(
        "cancellation",
        "(1-cos)/x^2",
        lambda t, x: (1 - t.cos(x)) / (x * x),
        1e-2,
        1e-4,
        1,
    ),
    *smooth("cancellation", "(exp-1)/x", lambda t, x: (t.exp(x) - 1) / x, 1e-3, 1e-6),
    *smooth(
        "cancellation",
        "expanded (x-1)^6",
        lambda t, x: x**6 - 6 * x**5 + 15 * x**4 - 20 * x**3 + 15 * x**2 - 6 * x + 1,
        1.5,
        1.1,
        1.01,
    ),
    *smooth("cancellation", "log(1+x)/x", lambda t, x: t.log(1 + x) / x, 1e-5, 1e-2),
    *smooth(
        "cancellation", "(x+1e6)-1e6", lambda t, x: (t.sin(x) + 1e6) - 1e6, 1, 0.01
    ),
    *smooth(
        "cancellation",
        "sqrt(x+1)-sqrt(x)",
        lambda t, x: t.sqrt(x + 1) - t.sqrt(x),
        1e4,
        1e8,
    ),
    # small derivatives
    *smooth("stationary", "cos", lambda t, x: t.cos(x), 1e-6, 0),
    *smooth("stationary", "(x-1)^2", lambda t, x: (x - 1) ** 2, 1, 1 + 1e-9),
    *smooth("stationary", "x^4", lambda t, x: x**4, 0, 1e-5),
    *smooth("stationary", "sin at pi/2", lambda t, x: t.sin(x), 1.5707963),
    *smooth("stationary", "constant", lambda t, x: 7 + 0 * x, 1, 1e5),
    # single precision inside
    *inside(
        "float32 inside", "f32 sin", rounded(np.sin), lambda t, x: t.sin(x), 1, 0.3
    ),
    *inside("float32 inside", "f32 exp", rounded(np.exp), lambda t, x: t.exp(x), 1, -2),
    *inside(
        "float32 inside",
        "f32 tanh(3x)",
        rounded(lambda v: F32(3) * v, np.tanh),
        lambda t, x: t.tanh(3 * x),
        0.2,
    ),
    *inside(
        "float32 inside",
        "f32 x^3",
        rounded(lambda v: v * v * v),
        lambda t, x: x**3,
        0.7,
        100,
    ),
    *inside(
        "float32 inside",
        "f32 result",
        lambda x: float(F32(np.sin(x))),
        lambda t, x: t.sin(x),
        1,
    ),
    *inside(
        "float32 inside",
        "2 + f32 log",
        lambda x: 2 + float(np.log(F32(x))),
        lambda t, x: 2 + t.log(x),
        3,
    ),
    *inside(
        "float32 inside",
        "x * f32 cos",
        lambda x: x * float(np.cos(F32(x))),
        lambda t, x: x * t.cos(x),
        1.2,
    ),
    # solvers inside
    *solved(
        "solver",
        "kepler 1e-6",
        lambda x: fixed_point(lambda e: x + 0.3 * np.sin(e), x, 1e-6),
        kepler_slope,
        1,
        2.5,
    ),
    *solved(
        "solver",
        "kepler 1e-8",
        lambda x: fixed_point(lambda e: x + 0.3 * np.sin(e), x, 1e-8),
        kepler_slope,
        0.7,
    ),
    *solved(
        "solver",
        "kepler newton 1e-10",
        lambda x: newton(
            lambda e: e - 0.3 * np.sin(e) - x, lambda e: 1 - 0.3 * np.cos(e), x, 1e-10
        ),
        kepler_slope,
        1,
        2,
    ),
    *solved(
        "solver",
        "v=cos(av) 1e-8",
        lambda a: fixed_point(lambda v: np.cos(a * v), 0.7, 1e-8),
        cosine_slope,
        0.5,
        0.8,
    ),
    *solved(
        "solver",
        "bisected log 1e-10",
        lambda x: bisection(lambda y: np.exp(y) - x, -5.0, 5.0, 1e-10),
        lambda x: 1 / x,
        2,
        0.5,
    ),
    *solved(
        "solver",
        "bisected log 1e-6",
        lambda x: bisection(lambda y: np.exp(y) - x, -5.0, 5.0, 1e-6),
        lambda x: 1 / x,
        2,
    ),
    *inside(
        "solver",
        "exp series 1e-10",
        lambda x: series_exp(x, 1e-10),
        lambda t, x: t.exp(x),
        1,
        3,
    ),
    *inside(
        "solver",
        "exp series 1e-7",
        lambda x: series_exp(x, 1e-7),
        lambda t, x: t.exp(x),
        1.5,
    ),
    *inside(
        "solver",
        "simpson 1e-8",
        lambda x: simpson_adaptive(np.cos, 0.0, x, 1e-8),
        lambda t, x: t.sin(x),
        2,
    ),
    # evaluated in float32
    *single("float32", "exp", lambda t, x: t.exp(x), 1, -3),
    *single("float32", "sin(30x)", lambda t, x: t.sin(30 * x), 1),
    *single("float32", "x^3", lambda t, x: x * x * x, 0.3, 1e3),
    *single("float32", "log", lambda t, x: t.log(x), 1e-3, 5),
]
