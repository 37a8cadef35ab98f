"""What LaTeX macros and bare words in an answer stand for."""


def word_set(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


# Macros that only change print.
SILENT = word_set(
    r"""
    \left \right \middle \big \Big \bigg \Bigg \bigl \bigr \Bigl \Bigr \biggl \biggr \Biggl \Biggr \displaystyle
    \textstyle \limits \nolimits \( \) \[ \] \! \$ \/ \textdollar \mathdollar \boxed \fbox \framebox \mathstrut
    \strut \rm \bf \it \sf \tt \tiny \scriptsize \small \normalsize \large \Large \LARGE \huge \Huge \therefore
    """
)
SPACES = word_set(r"\, \; \: \> \quad \qquad \thinspace \enspace \newline") | {"\\ ", "\\\n"}
TEXT_FONTS = word_set(
    r"""
    \text \textbf \textit \textrm \textnormal \textsf \texttt \textsc \emph \mbox \hbox \mathrm \mathsf \mathtt
    \operatorname
    """
)
MATH_FONTS = word_set(r"\mathbf \mathit \boldsymbol \bm \pmb \mathcal \mathscr \mathfrak \ensuremath")
OPERATORS = {
    r"\cdot": "*", r"\times": "*", r"\ast": "*", r"\div": "/", r"\slash": "/", r"\lt": "<", r"\gt": ">", r"\colon": ":",
    r"\vert": "|", r"\lvert": "|", r"\rvert": "|", r"\lbrack": "[", r"\rbrack": "]", r"\lparen": "(", r"\rparen": ")",
    r"\langle": "(", r"\rangle": ")", r"\lbrace": r"\{", r"\rbrace": r"\}", r"\{": r"\{", r"\}": r"\}", r"\%": "%",
    "\\\\": "\\\\", r"\cr": "\\\\", r"\prime": "'", r"\&": "&", r"\_": "_", r"\#": "#", r"\textpercent": "%", "**": "^",
}  # fmt: skip
# Other names of a macro or function, with or without a backslash.
ALIASES = {
    "dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "nicefrac": "frac", "sfrac": "frac", "dbinom": "binom",
    "tbinom": "binom", "le": "leq", "leqslant": "leq", "ge": "geq", "geqslant": "geq", "ne": "neq", "<=": "leq",
    ">=": "geq", "!=": "neq", "varnothing": "emptyset", "backslash": "setminus", "smallsetminus": "setminus",
    "simeq": "approx", "sim": "approx", "doteq": "approx", "tg": "tan", "ctg": "cot", "lg": "log", "lor": "or",
    "vee": "or", "land": "and", "wedge": "and", "varphi": "phi", "varepsilon": "epsilon", "degree": "circ",
    "textdegree": "circ", "ldots": "dots", "cdots": "dots", "dotsc": "dots", "infinity": "infty", "inf": "infty",
    "oo": "infty", "union": "cup", "asin": "arcsin", "acos": "arccos", "atan": "arctan",
}  # fmt: skip
FUNCTIONS = word_set(
    "sin cos tan cot sec csc arcsin arccos arctan arccot sinh cosh tanh log ln exp gcd lcm min max det"
)
GREEK = word_set(
    """
    alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon phi chi psi omega
    Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ell hbar vartheta nabla partial star bullet
    """
)
# Names that mean the same without a backslash.
PLAIN = FUNCTIONS | word_set("pi sqrt or and infinity infty inf union asin acos atan")


def environment(name: str) -> str:
    """The canonical name of an environment: the brackets of a matrix are print, the bars of a determinant are not."""
    if name in ("vmatrix", "Vmatrix"):
        return "vmatrix"
    return "matrix" if name == "array" or name.endswith("matrix") else name
